"""TFLite files as tables that can be changed and written again; and what a reader may miss in them, filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

IDENTIFIER = b"TFL3"
SIGNATURE = "serving_default"
BUFFER_ALIGNMENT_BYTES = 16  # what the format's schema asks of a buffer's data; Python's writer forgets it


class _Sharing(flatbuffers.Builder):
    """Writes vectors of equal numbers once: tables may point at the same one."""

    def __init__(self) -> None:
        super().__init__(1024)
        self._written: dict[tuple[str, bytes], int] = {}

    def CreateNumpyVector(self, x: np.ndarray) -> int:
        """Where the vector stands; called by every generated `Pack`."""
        key = (x.dtype.str, x.tobytes())
        if key not in self._written:
            if x.dtype == np.uint8:
                self.Prep(BUFFER_ALIGNMENT_BYTES, x.nbytes)
            self._written[key] = super().CreateNumpyVector(x)
        return self._written[key]


def parse(content: bytes) -> Any:
    """The file's table, all its buffers in it: one that is too large for a table may lie behind it."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    return model


def serialize(model: Any) -> bytes:
    """The table as a file, equal numbers once."""
    builder = _Sharing()
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def with_names_and_signature(content: bytes) -> bytes:
    """The same model with names and a signature: OpenVINO asks for the ones, the quantizer for the other.

    The file as it is where it has both.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = parse(content)
    nameless = [(place, tensor) for graph in model.subgraphs for place, tensor in enumerate(graph.tensors)
                if not tensor.name]  # fmt: skip
    if model.signatureDefs and not nameless:
        return content
    for place, tensor in nameless:
        tensor.name = f"tensor_{place}"
    if not model.signatureDefs:
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = SIGNATURE, 0
        graph = model.subgraphs[0]
        signature.inputs, signature.outputs = (
            [_mapped(schema, f"{end}_{number}", place) for number, place in enumerate(places)]
            for end, places in (("input", graph.inputs), ("output", graph.outputs))
        )
        model.signatureDefs = [signature]
    return serialize(model)


def _mapped(schema: Any, name: str, place: int) -> Any:
    found = schema.TensorMapT()
    found.name, found.tensorIndex = name, int(place)
    return found


def signature_names(content: bytes) -> dict[str, str]:
    """What its signature calls each input, by the tensor's name."""
    model = parse(content)
    [signature] = model.signatureDefs
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    return {tensors[each.tensorIndex].name.decode(): each.name.decode() for each in signature.inputs}


def name_inputs(content: bytes, names: Mapping[str, str]) -> bytes:
    """The same model with other names for its inputs, by what its signature calls each."""
    model = parse(content)
    [signature] = model.signatureDefs
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    for each in signature.inputs:
        name = names[each.name.decode()]
        tensors[each.tensorIndex].name = each.name = name
    return serialize(model)


def with_signature_names(content: bytes, names: Sequence[str]) -> bytes:
    """The same model, its inputs called as its signature calls them, where those are `names` and they are not yet."""
    if len(names) < 2:
        return content
    model = parse(content)
    graph = model.subgraphs[0]
    if sorted(graph.tensors[place].name.decode() for place in graph.inputs) == sorted(names):
        return content
    if len(model.signatureDefs or ()) != 1:  # of several nobody knows which is meant
        return content
    own = [each.name.decode() for each in model.signatureDefs[0].inputs]
    return name_inputs(content, dict(zip(own, own, strict=True))) if sorted(own) == sorted(names) else content
