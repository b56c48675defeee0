"""Store weights of a TFLite file as sparse tensors: the values that are not zero, and their indices.

The format has sparse tensors (`SparsityParameters`). All axes of a sparse weight but one are dense. The remaining axis
lists the indices of single values or of blocks, in as few bytes as its length needs. The operator DENSIFY converts such
a tensor for the operator that uses it. XNNPACK processes DENSIFY and that operator when it loads the file. On
processors for which it has sparse kernels (Elsen et al. 2020), it skips the zeros of float 1x1 convolutions. These
kernels add in another order than dense ones, so that the last bits of their answers may differ. Everywhere else,
weights are dense in memory, and only the file is smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.models.files import flatbuffer

BLOCKS = (1, 4)
"""Numbers of neighbours along the listed axis that share an index."""
TABLES_BYTES = 300
"""About how many bytes one sparse tensor needs besides its numbers: tables, an operator, and its output."""
MAX_SAMPLES = 16
WEIGHT = 1
FLOATS: dict[str, type] = {"FLOAT32": np.float32, "FLOAT16": np.float16}
DTYPES: dict[str, dict[str, type]] = {
    "CONV_2D": {**FLOATS, "INT8": np.int8},
    "DEPTHWISE_CONV_2D": {**FLOATS, "INT8": np.int8},
    "FULLY_CONNECTED": FLOATS,  # LiteRT 2.3 does not open files with DENSIFY before an int8 dense layer
    "TRANSPOSE_CONV": FLOATS,
}
"""The types of the weights that are encoded, by operator."""


@dataclass(frozen=True)
class SparseWeight:
    """A weight as a sparse tensor.

    Attributes
    ----------
    axis
        The axis along which indices are listed.
    block
        Number of neighbours that share an index.
    shape
        Shape of the weight.
    values
        The values that are not zero, (n,), or blocks with such values, (n, block).
    segments
        The start of each row in `indices`, and the end of the last one; all other axes together form the rows.
    indices
        Indices of the values along `axis`.
    """

    axis: int
    block: int
    shape: tuple[int, ...]
    values: np.ndarray
    segments: np.ndarray
    indices: np.ndarray

    @property
    def nbytes(self) -> int:
        """The approximate size in the file."""
        return int(self.values.nbytes + self.segments.nbytes + self.indices.nbytes + TABLES_BYTES)


Samples = np.ndarray | Mapping[str, np.ndarray]
"""Samples (n, …), float32, in the layout of the file's input, or such samples for each input by its name."""


def encode(content: bytes, inputs: Samples | None) -> tuple[bytes, str]:
    """Store weights as sparse tensors if the file is then smaller and gives the same answers.

    Parameters
    ----------
    content
        The file.
    inputs
        Samples on which the answers of both files are compared, bit by bit; None if there are none.

    Returns
    -------
    tuple
        The file, and a text that says whether weights are sparse. The file is the same if they are not.
    """
    encoded, summary = encode_weights(content)
    if encoded is None:
        return content, f"kept dense: {summary}"
    by_name = inputs if isinstance(inputs, Mapping) or inputs is None else {"": inputs}
    count = min(MAX_SAMPLES, *(len(each) for each in by_name.values())) if by_name else 0
    if not by_name or not count:
        return content, "kept dense: there is no sample on which the answers could be compared"
    samples = {name: each[:count] for name, each in by_name.items()}
    before = run_samples(content, samples)
    try:
        after = run_samples(encoded, samples)
    except (RuntimeError, ValueError) as error:  # LiteRT raises them for operators that it cannot prepare
        return content, f"kept dense: {summary}, and LiteRT does not open it ({str(error).partition(';')[0][:120]})"
    if len(before) != len(after) or any(
        one.tobytes() != other.tobytes() for one, other in zip(before, after, strict=True)
    ):
        return content, f"kept dense: {summary}, and LiteRT's answers to {count} samples differ"
    return encoded, f"sparse: {summary}"


def encode_weights(content: bytes) -> tuple[bytes | None, str]:
    """Store those weights as sparse tensors that become smaller by it, without comparing answers.

    Returns the file and a description of the change, or None and the reason why it would not be smaller.
    """
    model = flatbuffer.parse(content)
    count, zeros, weights = 0, 0, 0
    for graph in model.subgraphs:
        for index, kind in _weights(model, graph).items():
            array = _array(model, graph.tensors[index], DTYPES[kind])
            if array is None:
                continue
            weight = smallest_encoding(array)
            if weight.nbytes < array.nbytes:
                _replace(model, graph, index, weight)
                count, zeros, weights = count + 1, zeros + int((array == 0).sum()), weights + array.size
    if not count:
        return None, "no weight has enough zeros to become smaller"
    encoded = flatbuffer.serialize(model)
    if len(encoded) >= len(content):
        return None, f"{len(encoded):,} bytes instead of {len(content):,}"
    return (
        encoded,
        f"{count} weights, {zeros / weights:.0%} of them zeros; {len(encoded):,} bytes instead of {len(content):,}",
    )


def smallest_encoding(array: np.ndarray) -> SparseWeight:
    """Return the smallest encoding of an array over all axes and block sizes."""
    kinds = [
        (axis, block) for axis, size in enumerate(array.shape) for block in BLOCKS if size > 1 and size % block == 0
    ]
    return min((encode_array(array, *kind) for kind in kinds or [(0, 1)]), key=lambda weight: weight.nbytes)


def encode_array(array: np.ndarray, axis: int, block: int = 1) -> SparseWeight:
    """Encode an array with indices along `axis`, in blocks of `block` neighbours; -0.0 counts as zero."""
    rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis] // block, block)
    nonzero = (rows != 0).any(axis=-1)
    segments = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))])
    return SparseWeight(axis, block, array.shape, rows[nonzero], _narrow(segments), _narrow(np.nonzero(nonzero)[1]))


def run_samples(content: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return every output of LiteRT, sample by sample; quantized inputs are converted by their scale.

    The name of a single input may be empty.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    sources = interpreter.get_input_details()
    rows = [
        _encode_input(source, inputs[source["name"] if len(sources) > 1 else next(iter(inputs))]) for source in sources
    ]
    results = [detail["index"] for detail in interpreter.get_output_details()]
    outputs = []
    for sample in zip(*rows, strict=True):
        for source, row in zip(sources, sample, strict=True):
            interpreter.set_tensor(source["index"], row.reshape(source["shape"]))
        interpreter.invoke()
        outputs += [interpreter.get_tensor(index) for index in results]
    return outputs


def _encode_input(source: Any, inputs: np.ndarray) -> np.ndarray:
    dtype = np.dtype(source["dtype"])
    if dtype.kind not in "iu" or not source["quantization"][0]:
        return inputs.astype(dtype)
    scale, zero = source["quantization"]
    limits = np.iinfo(dtype)
    return np.clip(np.rint(inputs / scale) + zero, limits.min, limits.max).astype(dtype)


def _narrow(numbers: np.ndarray) -> np.ndarray:
    """Convert numbers to the narrowest type of the format."""
    largest = int(numbers.max(initial=0))
    return numbers.astype(np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32)


def _weights(model: Any, graph: Any) -> dict[int, str]:
    """Return the kind of the operator that uses each weight, by the index of the tensor that stores the weight."""
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    codes = [names[max(code.builtinCode, code.deprecatedBuiltinCode)] for code in model.operatorCodes]
    kinds = [(codes[op.opcodeIndex], op) for op in graph.operators]
    cast = {int(op.outputs[0]): int(op.inputs[0]) for kind, op in kinds if kind == "DEQUANTIZE"}
    weights = [(int(op.inputs[WEIGHT]), kind) for kind, op in kinds if kind in DTYPES]
    return {cast.get(index, index): kind for index, kind in weights}


def _array(model: Any, tensor: Any, dtypes: Mapping[str, type]) -> np.ndarray | None:
    """Return the numbers of a weight; None if it is computed, already sparse, or of another type."""
    from ai_edge_litert import schema_py_generated as schema

    types = {getattr(schema.TensorType, name): dtype for name, dtype in dtypes.items()}
    data = model.buffers[tensor.buffer].data
    if data is None or not len(data) or tensor.sparsity is not None or tensor.type not in types:
        return None
    return np.asarray(data, np.uint8).view(types[tensor.type]).reshape(tensor.shape)


def _replace(model: Any, graph: Any, index: int, weight: SparseWeight) -> None:
    """Make a tensor sparse, and connect its users to the output of DENSIFY."""
    from ai_edge_litert import schema_py_generated as schema

    tensor, dense = graph.tensors[index], schema.TensorT()
    dense.shape, dense.type, dense.quantization, dense.hasRank = tensor.shape, tensor.type, tensor.quantization, True
    dense.buffer = 0  # the first buffer is the empty one
    graph.tensors.append(dense)
    dense_index = len(graph.tensors) - 1
    for op in graph.operators:
        op.inputs = [dense_index if source == index else int(source) for source in op.inputs]
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = _code(schema, model), [index], [dense_index]
    graph.operators.insert(0, operator)
    data = np.frombuffer(weight.values.tobytes(), np.uint8)
    if sum(each.buffer == tensor.buffer for one in model.subgraphs for each in one.tensors) > 1:
        model.buffers.append(schema.BufferT())
        tensor.buffer = len(model.buffers) - 1
    model.buffers[tensor.buffer].data = data
    tensor.sparsity = _parameters(schema, weight)


def _code(schema: Any, model: Any) -> int:
    """Return the index of DENSIFY in the file's list of operators, and add DENSIFY if the list does not have it."""
    for number, code in enumerate(model.operatorCodes):
        if code.builtinCode == schema.BuiltinOperator.DENSIFY:
            return number
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DENSIFY
    code.version = 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def _parameters(schema: Any, weight: SparseWeight) -> Any:
    """Return the sparsity parameters, with the axes in storage order: dense ones, the listed one, its blocks."""
    parameters, rank = schema.SparsityParametersT(), len(weight.shape)
    others = [axis for axis in range(rank) if axis != weight.axis]
    parameters.traversalOrder = [*others, weight.axis, *([rank] if weight.block > 1 else [])]
    if weight.block > 1:
        parameters.blockMap = [weight.axis]
    listed = schema.DimensionMetadataT()
    listed.format = schema.DimensionType.SPARSE_CSR
    listed.arraySegmentsType, listed.arraySegments = _vector(schema, weight.segments)
    listed.arrayIndicesType, listed.arrayIndices = _vector(schema, weight.indices)
    blocks = [_dense(schema, weight.block)] if weight.block > 1 else []
    parameters.dimMetadata = [*(_dense(schema, weight.shape[axis]) for axis in others), listed, *blocks]
    return parameters


def _dense(schema: Any, size: int) -> Any:
    metadata = schema.DimensionMetadataT()
    metadata.format, metadata.denseSize = schema.DimensionType.DENSE, int(size)
    return metadata


def _vector(schema: Any, numbers: np.ndarray) -> tuple[int, Any]:
    """Return the format's number for the type of a list, and the list."""
    name = f"{numbers.dtype.name.capitalize()}Vector"
    vector = getattr(schema, f"{name}T")()
    vector.values = numbers
    return getattr(schema.SparseIndexVector, name), vector
