"""Read TFLite files as tables that can be changed, write them again, and add names that readers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

IDENTIFIER = b"TFL3"
SIGNATURE = "serving_default"
BUFFER_ALIGNMENT_BYTES = 16  # the format's schema requires it for the data of a buffer, but Python's writer ignores it


class _Sharing(flatbuffers.Builder):
    """A builder that writes equal vectors only once. The format allows it: several tables may refer to one vector."""

    def __init__(self) -> None:
        super().__init__(1024)
        self._written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x: np.ndarray) -> int:
        """Write a vector and return its offset; every generated `Pack` calls this."""
        key = (x.dtype.str, x.tobytes())
        if key not in self._written:
            if x.dtype == np.uint8:
                self.Prep(BUFFER_ALIGNMENT_BYTES, x.nbytes)
            self._written[key] = super().CreateNumpyVector(x)
        return self._written[key]


def parse(content: bytes) -> Any:
    """Parse a file into a table with all its buffers, including large ones that the file stores after the table."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def serialize(model: Any) -> bytes:
    """Return the bytes of a file from its table; equal vectors are stored once."""
    builder = _Sharing()
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def with_names_and_signature(content: bytes) -> bytes:
    """Add missing tensor names and a signature. OpenVINO needs the names, and the quantizer needs the signature.

    A file that has both is returned unchanged.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = parse(content)
    nameless = [(index, tensor) for graph in model.subgraphs for index, tensor in enumerate(graph.tensors)
                if not tensor.name]  # fmt: skip
    if model.signatureDefs and not nameless:
        return content
    for index, tensor in nameless:
        tensor.name = f"tensor_{index}"
    if not model.signatureDefs:
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
        graph = model.subgraphs[0]
        signature.inputs, signature.outputs = (
            [_tensor_map(schema, f"{side}_{number}", index) for number, index in enumerate(indices)]
            for side, indices in (("input", graph.inputs), ("output", graph.outputs))
        )
        model.signatureDefs = [signature]
    return serialize(model)


def _tensor_map(schema: Any, name: str, index: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, int(index)
    return entry


def signature_names(content: bytes) -> dict[str, str]:
    """Return the signature's name for each input, by the name of its tensor."""
    model = parse(content)
    [signature] = model.signatureDefs
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    return {tensors[each.tensorIndex].name.decode(): each.name.decode() for each in signature.inputs}


def name_inputs(content: bytes, names: Mapping[str, str]) -> bytes:
    """Rename the inputs of a model; `names` gives the new name for each name in its signature."""
    model = parse(content)
    [signature] = model.signatureDefs
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    for each in signature.inputs:
        name = names[each.name.decode()]
        tensors[each.tensorIndex].name = each.name = name
    return serialize(model)


def with_signature_names(content: bytes, names: Sequence[str]) -> bytes:
    """Give the inputs of a model the names of its signature, if those are `names` and the tensors have other names."""
    if len(names) < 2:
        return content
    model = parse(content)
    graph = model.subgraphs[0]
    if sorted(graph.tensors[position].name.decode() for position in graph.inputs) == sorted(names):
        return content
    if len(model.signatureDefs or ()) != 1:  # with several signatures it is not known which one is meant
        return content
    own = [each.name.decode() for each in model.signatureDefs[0].inputs]
    return name_inputs(content, dict(zip(own, own, strict=True))) if sorted(own) == sorted(names) else content
