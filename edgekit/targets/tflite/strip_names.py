"""A TFLite file without what no interpreter asks for: names of inner tensors, remarks, and numbers written twice.

litert-torch names a tensor by the paths of all modules that were fused into it, up to a thousand bytes each. The
quantizer writes a vector of zero points (eight bytes a channel, all zero) for every weight and again for its bias.
"""

from __future__ import annotations

from typing import Any

from edgekit.models.files import flatbuffer


def shorten(content: bytes) -> bytes:
    """The same model in fewer bytes: the same operators, numbers and outputs, input and output tensors still named.

    Gone are the inner tensors' names, signatures (the runner sets tensors by index), metadata and remarks.
    """
    model = flatbuffer.parse(content)
    model.description = model.metadata = model.metadataBuffer = model.signatureDefs = None
    for graph in model.subgraphs:
        graph.name = None
        named = {*(int(place) for place in graph.inputs), *(int(place) for place in graph.outputs)}
        for place, tensor in enumerate(graph.tensors):
            if place not in named:
                tensor.name = None
    _drop_unused_buffers(model)
    return flatbuffer.write(model)


def _drop_unused_buffers(model: Any) -> None:
    """Buffer 0 stays: the format keeps it empty, for tensors without data."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    used = sorted({0, *(tensor.buffer for tensor in tensors)})
    model.buffers = [model.buffers[place] for place in used]
    for tensor in tensors:
        tensor.buffer = used.index(tensor.buffer)
