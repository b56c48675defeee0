"""Shorten an ONNX file by removing long inner names, remarks, inferable shapes and unused operator sets.

No runtime needs any of these. The exporter names tensors after modules, and the quantizer makes five names from each,
so that names take up a fifth of a small int8 file. Graphs inside operators share the names of the graph around them, so
all graphs use one list of new names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.runner.backends import byte_inputs
from edgekit.targets.onnx.graph import graphs_of

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
REMARKS = ("producer_name", "producer_version", "domain", "model_version", "doc_string", "training_info")
STANDARD = {"", "ai.onnx"}
"""The two names of ONNX's own operator set."""


def shorten(content: bytes) -> bytes:
    """Return the same model in fewer bytes, with the same operators, numbers and names of inputs and outputs.

    Inner tensors and operators get numbers as names, and equal files give equal bytes. The names inside a model's own
    functions do not change.
    """
    import onnx

    model = onnx.load_model_from_string(content)
    graphs = list(graphs_of(model.graph))
    port_names = {port.name for port in (*model.graph.input, *model.graph.output)}
    short = _short_names(graphs, port_names)
    for graph in graphs:
        _rename(graph, short)
        for part in ("value_info", "quantization_annotation", "metadata_props", "doc_string"):
            graph.ClearField(part)
    for part in REMARKS:
        model.ClearField(part)
    needed = [each for each in model.metadata_props if each.key == byte_inputs.METADATA_KEY]
    model.ClearField("metadata_props")
    model.metadata_props.extend(needed)
    model.graph.name = "g"  # an empty name is not allowed
    _drop_unused_sets(model, graphs)
    return bytes(model.SerializeToString(deterministic=True))


def _weights(graph: Any) -> Iterator[Any]:
    """Yield everything that has the name of a stored tensor; a sparse tensor has the name of its values."""
    yield from graph.initializer
    yield from (each.values for each in graph.sparse_initializer)


def _short_names(graphs: list[Any], port_names: set[str]) -> dict[str, str]:
    """Return a short name for each inner tensor, the shortest for those that occur most often."""
    used: dict[str, int] = {}
    for graph in graphs:
        stored = [each.name for each in (*graph.input, *graph.output, *_weights(graph))]
        for name in (*stored, *(name for node in graph.node for name in (*node.input, *node.output))):
            used[name] = used.get(name, 0) + 1
    inner = sorted((name for name in used if name and name not in port_names), key=lambda name: -used[name])
    free = (name for index in range(len(used) + len(port_names)) if (name := _number(index)) not in port_names)
    return dict(zip(inner, free, strict=False))


def _number(index: int) -> str:
    digit = DIGITS[index % len(DIGITS)]
    return _number(index // len(DIGITS) - 1) + digit if index >= len(DIGITS) else digit


def _rename(graph: Any, short: dict[str, str]) -> None:
    for each in (*graph.input, *graph.output, *_weights(graph)):
        each.name = short.get(each.name, each.name)
        each.ClearField("doc_string")
        each.ClearField("metadata_props")
    for number, node in enumerate(graph.node):
        for names in (node.input, node.output):
            for index, name in enumerate(names):
                names[index] = short.get(name, name)
        node.name = _number(number)  # profilers distinguish operators by name
        node.ClearField("doc_string")
        node.ClearField("metadata_props")


def _drop_unused_sets(model: Any, graphs: list[Any]) -> None:
    """Remove operator sets that no operator uses; those of the model's own functions stay."""
    used = {node.domain for graph in graphs for node in graph.node} | {each.domain for each in model.functions}
    used |= {each.domain for function in model.functions for each in function.opset_import}
    used |= STANDARD
    for index in reversed(range(len(model.opset_import))):
        if model.opset_import[index].domain not in used:
            del model.opset_import[index]
