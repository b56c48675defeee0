"""A TFLite file that stores the zeros of its weights as such: the values that are not zero, and where they stand.

The format knows sparse tensors (`SparsityParameters`). All axes of a weight but one are dense, and the last of them
lists places: as many bytes for each as that axis needs, alone or in blocks. The operator DENSIFY stands between such a
tensor and what takes it in. XNNPACK reads both while it loads the file; on processors for which it has sparse kernels
(Elsen et al. 2020) it then keeps the zeros of float 1x1 convolutions out of the arithmetic. They add in another order,
so that last bits may differ there. Everywhere else weights are dense in memory: only the file is smaller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.models.files import flatbuffer

BLOCKS = (1, 4)
"""Neighbours that share a place, along the listed axis."""
TABLES_BYTES = 300
"""About what the format needs for one sparse tensor besides its numbers: tables, an operator, its output."""
MAX_SAMPLES = 16
WEIGHT = 1
FLOATS: dict[str, type] = {"FLOAT32": np.float32, "FLOAT16": np.float16}
DTYPES: dict[str, dict[str, type]] = {
    "CONV_2D": {**FLOATS, "INT8": np.int8},
    "DEPTHWISE_CONV_2D": {**FLOATS, "INT8": np.int8},
    "FULLY_CONNECTED": FLOATS,  # LiteRT 2.3 does not open a file in which an int8 one stands behind DENSIFY
    "TRANSPOSE_CONV": FLOATS,
}
"""Of the weights that are encoded, by operator."""


@dataclass(frozen=True)
class SparseWeight:
    """One weight: its values (n,) where not zero, or (n, block), and their places along `axis`.

    `segments` says where the places of each row begin, all other axes taken together; they end with `places`.
    """

    axis: int
    block: int
    shape: tuple[int, ...]
    values: np.ndarray
    segments: np.ndarray
    places: np.ndarray

    @property
    def nbytes(self) -> int:
        """In the file, about."""
        return int(self.values.nbytes + self.segments.nbytes + self.places.nbytes + TABLES_BYTES)


Samples = np.ndarray | Mapping[str, np.ndarray]
"""(n, …) float32 in the layout of a file's one input, or of each by its name."""


def encode(content: bytes, inputs: Samples | None) -> tuple[bytes, str]:
    """The file with sparse weights, or as it is, and what became of them, in words.

    Parameters
    ----------
    content
        The file.
    inputs
        Samples; None where there are none. Both files answer some of them. If a bit of an answer differs, the file
        stays as it is.
    """
    made, what = encode_weights(content)
    if made is None:
        return content, f"kept dense: {what}"
    given = inputs if isinstance(inputs, Mapping) or inputs is None else {"": inputs}
    count = min(MAX_SAMPLES, *(len(each) for each in given.values())) if given else 0
    if not given or not count:
        return content, "kept dense: there is no sample to compare the answers by"
    chosen = {name: each[:count] for name, each in given.items()}
    before = run_samples(content, chosen)
    try:
        after = run_samples(made, chosen)
    except (RuntimeError, ValueError) as error:  # what LiteRT raises for operators that it cannot prepare
        return content, f"kept dense: {what}, and LiteRT does not open it ({str(error).partition(';')[0][:120]})"
    if len(before) != len(after) or any(
        one.tobytes() != other.tobytes() for one, other in zip(before, after, strict=True)
    ):
        return content, f"kept dense: {what}, and LiteRT's answers to {count} samples differ"
    return made, f"sparse: {what}"


def encode_weights(content: bytes) -> tuple[bytes | None, str]:
    """The file with every weight sparse that is smaller so, unproven, and how much smaller; None where none is."""
    model = flatbuffer.parse(content)
    count, zeros, weights = 0, 0, 0
    for graph in model.subgraphs:
        for place, kind in _weights(model, graph).items():
            array = _array(model, graph.tensors[place], DTYPES[kind])
            if array is None:
                continue
            found = smallest_encoding(array)
            if found.nbytes < array.nbytes:
                _replace(model, graph, place, found)
                count, zeros, weights = count + 1, zeros + int((array == 0).sum()), weights + array.size
    if not count:
        return None, "no weight has zeros enough to be smaller"
    made = flatbuffer.serialize(model)
    if len(made) >= len(content):
        return None, f"{len(made):,} bytes instead of {len(content):,}"
    return (
        made,
        f"{count} weights, {zeros / weights:.0%} of them zeros; {len(made):,} bytes instead of {len(content):,}",
    )


def smallest_encoding(array: np.ndarray) -> SparseWeight:
    """Of all axes and blocks the encoding that takes fewest bytes."""
    kinds = [
        (axis, block) for axis, size in enumerate(array.shape) for block in BLOCKS if size > 1 and size % block == 0
    ]
    return min((encode_array(array, *kind) for kind in kinds or [(0, 1)]), key=lambda found: found.nbytes)


def encode_array(array: np.ndarray, axis: int, block: int = 1) -> SparseWeight:
    """The array with that axis listed, in blocks of so many neighbours; -0.0 is a zero."""
    rows = np.moveaxis(array, axis, -1).reshape(-1, array.shape[axis] // block, block)
    kept = (rows != 0).any(axis=-1)
    segments = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    return SparseWeight(axis, block, array.shape, rows[kept], _narrow(segments), _narrow(np.nonzero(kept)[1]))


def run_samples(content: bytes, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Every output of LiteRT, sample by sample; integers are given values by their input's scale.

    A single input's name may be left empty.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    sources = interpreter.get_input_details()
    rows = [_given(source, inputs[source["name"] if len(sources) > 1 else next(iter(inputs))]) for source in sources]
    ends = [detail["index"] for detail in interpreter.get_output_details()]
    found = []
    for sample in zip(*rows, strict=True):
        for source, row in zip(sources, sample, strict=True):
            interpreter.set_tensor(source["index"], row.reshape(source["shape"]))
        interpreter.invoke()
        found += [interpreter.get_tensor(place) for place in ends]
    return found


def _given(source: Any, inputs: np.ndarray) -> np.ndarray:
    dtype = np.dtype(source["dtype"])
    if dtype.kind not in "iu" or not source["quantization"][0]:
        return inputs.astype(dtype)
    scale, zero = source["quantization"]
    limits = np.iinfo(dtype)
    return np.clip(np.rint(inputs / scale) + zero, limits.min, limits.max).astype(dtype)


def _narrow(numbers: np.ndarray) -> np.ndarray:
    """In the narrowest type that the format offers."""
    most = int(numbers.max(initial=0))
    return numbers.astype(np.uint8 if most < 2**8 else np.uint16 if most < 2**16 else np.int32)


def _weights(model: Any, graph: Any) -> dict[int, str]:
    """Places of weights, and what takes each in; where they are cast before, places of what is cast."""
    from ai_edge_litert import schema_py_generated as schema

    names = {value: name for name, value in vars(schema.BuiltinOperator).items() if not name.startswith("_")}
    codes = [names[max(code.builtinCode, code.deprecatedBuiltinCode)] for code in model.operatorCodes]
    kinds = [(codes[op.opcodeIndex], op) for op in graph.operators]
    cast = {int(op.outputs[0]): int(op.inputs[0]) for kind, op in kinds if kind == "DEQUANTIZE"}
    places = [(int(op.inputs[WEIGHT]), kind) for kind, op in kinds if kind in DTYPES]
    return {cast.get(place, place): kind for place, kind in places}


def _array(model: Any, tensor: Any, dtypes: Mapping[str, type]) -> np.ndarray | None:
    """A weight's numbers; None where it is computed, sparse already, or of another type."""
    from ai_edge_litert import schema_py_generated as schema

    types = {getattr(schema.TensorType, name): dtype for name, dtype in dtypes.items()}
    data = model.buffers[tensor.buffer].data
    if data is None or not len(data) or tensor.sparsity is not None or tensor.type not in types:
        return None
    return np.asarray(data, np.uint8).view(types[tensor.type]).reshape(tensor.shape)


def _replace(model: Any, graph: Any, place: int, found: SparseWeight) -> None:
    """Make the tensor sparse, and give whoever took it what DENSIFY makes of it."""
    from ai_edge_litert import schema_py_generated as schema

    tensor, dense = graph.tensors[place], schema.TensorT()
    dense.shape, dense.type, dense.quantization, dense.hasRank = tensor.shape, tensor.type, tensor.quantization, True
    dense.buffer = 0  # the first one is the empty one
    graph.tensors.append(dense)
    behind = len(graph.tensors) - 1
    for op in graph.operators:
        op.inputs = [behind if taken == place else int(taken) for taken in op.inputs]
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = _code(schema, model), [place], [behind]
    graph.operators.insert(0, operator)
    data = np.frombuffer(found.values.tobytes(), np.uint8)
    if sum(each.buffer == tensor.buffer for one in model.subgraphs for each in one.tensors) > 1:
        model.buffers.append(schema.BufferT())
        tensor.buffer = len(model.buffers) - 1
    model.buffers[tensor.buffer].data = data
    tensor.sparsity = _parameters(schema, found)


def _code(schema: Any, model: Any) -> int:
    """Where DENSIFY stands in the file's list of operators; added where it is not there."""
    for number, code in enumerate(model.operatorCodes):
        if code.builtinCode == schema.BuiltinOperator.DENSIFY:
            return number
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.DENSIFY
    code.version = 1
    model.operatorCodes.append(code)
    return len(model.operatorCodes) - 1


def _parameters(schema: Any, found: SparseWeight) -> Any:
    """Axes in the order in which they are walked: dense ones, the listed one, and its blocks."""
    parameters, rank = schema.SparsityParametersT(), len(found.shape)
    others = [axis for axis in range(rank) if axis != found.axis]
    parameters.traversalOrder = [*others, found.axis, *([rank] if found.block > 1 else [])]
    if found.block > 1:
        parameters.blockMap = [found.axis]
    listed = schema.DimensionMetadataT()
    listed.format = schema.DimensionType.SPARSE_CSR
    listed.arraySegmentsType, listed.arraySegments = _vector(schema, found.segments)
    listed.arrayIndicesType, listed.arrayIndices = _vector(schema, found.places)
    blocks = [_dense(schema, found.block)] if found.block > 1 else []
    parameters.dimMetadata = [*(_dense(schema, found.shape[axis]) for axis in others), listed, *blocks]
    return parameters


def _dense(schema: Any, size: int) -> Any:
    found = schema.DimensionMetadataT()
    found.format, found.denseSize = schema.DimensionType.DENSE, int(size)
    return found


def _vector(schema: Any, numbers: np.ndarray) -> tuple[int, Any]:
    """The format's number for a list's type, and the list."""
    name = f"{numbers.dtype.name.capitalize()}Vector"
    vector = getattr(schema, f"{name}T")()
    vector.values = numbers
    return getattr(schema.SparseIndexVector, name), vector
