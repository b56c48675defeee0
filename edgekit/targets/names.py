"""A TFLite file without what no interpreter asks for: names of inner tensors, remarks, and numbers written twice.

litert-torch names a tensor by the paths of all modules that were fused into it, up to a thousand bytes each, and the
quantizer writes a vector of zero points (eight bytes a channel, all zero) for every weight and again for its bias.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np

IDENTIFIER = b"TFL3"
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


def shorten(content: bytes) -> bytes:
    """The same model in fewer bytes: the same operators, numbers and outputs, input and output tensors still named.

    Gone are the inner tensors' names, signatures (the runner sets tensors by index), metadata and remarks.
    """
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(content, 0)
    model.description = model.metadata = model.metadataBuffer = model.signatureDefs = None
    for graph in model.subgraphs:
        graph.name = None
        named = {*(int(place) for place in graph.inputs), *(int(place) for place in graph.outputs)}
        for place, tensor in enumerate(graph.tensors):
            if place not in named:
                tensor.name = None
    _bring_inside(model, content)
    _drop_unused_buffers(model)
    builder = _Sharing()
    builder.Finish(model.Pack(builder), file_identifier=IDENTIFIER)
    return bytes(builder.Output())


def _bring_inside(model: Any, content: bytes) -> None:
    """The quantizer may write buffers behind the table, and the table only where: it is written anew here."""
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = np.frombuffer(content, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0


def _drop_unused_buffers(model: Any) -> None:
    """Buffer 0 stays: the format keeps it empty, for tensors without data."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    used = sorted({0, *(tensor.buffer for tensor in tensors)})
    model.buffers = [model.buffers[place] for place in used]
    for tensor in tensors:
        tensor.buffer = used.index(tensor.buffer)
