"""The operators of a `.tflite` file, read with just enough FlatBuffers to reach its operator codes, within bounds.

Model          operator_codes is field 1, buffers 4, external_buffer_groups 8 and external_buffers 9
OperatorCode   deprecated_builtin_code int8 (0), custom_code string (1), version int32 = 1 (2), builtin_code int32 (3)
Buffer         data (0); or offset uint64 (1) and size uint64 (2) of bytes behind the FlatBuffer, in the same file
"""

from __future__ import annotations

import struct

from edgekit.runner.errors import BundleError
from edgekit.runner.operators import ModelRequirements, Operator

CUSTOM = 32
"""The code of operators that are not builtin."""

BUILTIN_NAMES = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC
    LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX
    SPACE_TO_DEPTH SVDF TANH CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD
    UNIDIRECTIONAL_SEQUENCE_RNN GATHER BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE
    UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE
    BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL
    LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT
    RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT
    UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE RESIZE_NEAREST_NEIGHBOR
    LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND COS WHERE RANK
    ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE NON_MAX_SUPPRESSION_V4
    NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL PLACEHOLDER_FOR_GREATER_OP_CODES
    CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT
    HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE BROADCAST_ARGS
    RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1
    UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST
    BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY
    STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM
    STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND
    STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE
    STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT
    STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW
    STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
    REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
"""
"""Builtin operators in the order of their codes, as in LiteRT's schema."""
IDENTIFIER = b"TFL3"
MOST_CODES = 4096
EXTERNAL_BUFFER_FIELDS = (8, 9)
FLEX = "Flex"
"""Prefix of TensorFlow's own operators, some of which read and write files: FlexReadFile, FlexSaveV2, FlexPrintV2."""
MOST_NAME_BYTES = 1024


def read(data: bytes) -> ModelRequirements:
    """Return the operator codes of the file, used or not, because an interpreter looks all of them up."""
    tables = _tables(data, _model(data), 1)
    if len(tables) > MOST_CODES:
        raise BundleError(f"malformed TFLite model: {len(tables)} operator codes; convert the model again")
    return ModelRequirements(tuple(sorted({_operator(data, _follow(data, position)) for position in tables})))


def check_closed(data: bytes) -> None:
    """Raise BundleError for a model with buffers outside the file, or with operators that may open files."""
    model = _model(data)
    if any(_field(data, model, slot) is not None for slot in EXTERNAL_BUFFER_FIELDS):
        raise BundleError("has weights in another file (external buffers); convert the model into one file")
    for position in _tables(data, model, 4):
        fields = (_field(data, _follow(data, position), slot) for slot in (1, 2))
        offset, size = (_integer("<Q", data, each) if each else 0 for each in fields)
        if offset + size > len(data):
            raise BundleError("malformed TFLite model: a buffer beyond the end of the file; convert the model again")
    flex = [each.name for each in read(data).operators if each.domain == "custom" and each.name.startswith(FLEX)]
    if flex:
        raise BundleError(
            f"has TensorFlow's own operator {flex[0][:60]}, which can open any file; convert the model with builtin "
            "operators only"
        )


def _model(data: bytes) -> int:
    """Return the position of the root table."""
    if data[4:8] != IDENTIFIER:
        raise BundleError(
            f"not a TFLite model: bytes 4-8 are {data[4:8]!r}, not {IDENTIFIER!r}; build the bundle again"
        )
    return _follow(data, 0)


def _tables(data: bytes, table: int, slot: int) -> range:
    """Return the positions of the offsets in a vector of tables."""
    vector = _field(data, table, slot)
    if vector is None:
        return range(0)
    start = _follow(data, vector)
    return range(start + 4, start + 4 + 4 * _integer("<I", data, start), 4)


def _operator(data: bytes, table: int) -> Operator:
    old, name, version, new = (_field(data, table, slot) for slot in range(4))
    code = max(_integer("<b", data, old) if old else 0, _integer("<i", data, new) if new else 0)
    number = _integer("<i", data, version) if version else 1
    if code == CUSTOM:
        return Operator("custom", _string(data, _follow(data, name)) if name else "", number)
    if code < 0:
        raise BundleError(f"malformed TFLite model: operator code {code}; convert the model again")
    return Operator("builtin", builtin_name(code), number)


def _field(data: bytes, table: int, slot: int) -> int | None:
    """Return the position of a table's field, or None if it has its default."""
    vtable = table - _integer("<i", data, table)
    if 4 + 2 * slot + 2 > _integer("<H", data, vtable):
        return None
    offset = _integer("<H", data, vtable + 4 + 2 * slot)
    return table + offset if offset else None


def _follow(data: bytes, position: int) -> int:
    """Return the position that an offset points to. Offsets always point forward."""
    return position + _integer("<I", data, position)


def _string(data: bytes, position: int) -> str:
    length = _integer("<I", data, position)
    text = data[position + 4 : position + 4 + length]
    if length > MOST_NAME_BYTES or len(text) != length:
        raise BundleError(f"malformed TFLite model: a name of {length} bytes; convert the model again")
    return text.decode("utf-8", errors="replace")


def _integer(format: str, data: bytes, position: int) -> int:
    if position < 0 or position + struct.calcsize(format) > len(data):
        raise BundleError(
            f"malformed TFLite model: an offset points to byte {position} of {len(data)}; convert the model again"
        )
    value: int = struct.unpack_from(format, data, position)[0]
    return value


def builtin_name(code: int) -> str:
    """Return the operator's name, or BUILTIN_n if it is newer than this table."""
    names = BUILTIN_NAMES.split()
    return names[code] if code < len(names) else f"BUILTIN_{code}"
