"""An ONNX file without what no runtime asks for: long names inside, remarks, shapes that follow, unused operator sets.

The exporter names tensors by modules, and the quantizer makes five names of each: a fifth of a small int8 file. Graphs
inside operators share the names of the graph around them, so one list of new names serves all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from edgekit.runner.backends import byte_inputs
from edgekit.targets.onnx.graph import graphs_of

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
REMARKS = ("producer_name", "producer_version", "domain", "model_version", "doc_string", "training_info")
STANDARD = {"", "ai.onnx"}
"""Two spellings of ONNX's own operators."""


def shorten(content: bytes) -> bytes:
    """The same model in fewer bytes: the same operators, numbers and outputs; inputs and outputs keep their names.

    Inner tensors and operators are named by their place, and equal files give equal bytes. The names inside a model's
    own functions stay.
    """
    import onnx

    model = onnx.load_model_from_string(content)
    graphs = list(graphs_of(model.graph))
    kept = {port.name for port in (*model.graph.input, *model.graph.output)}
    short = _short(graphs, kept)
    for graph in graphs:
        _rename(graph, short)
        for part in ("value_info", "quantization_annotation", "metadata_props", "doc_string"):
            graph.ClearField(part)
    for part in REMARKS:
        model.ClearField(part)
    said = [each for each in model.metadata_props if each.key == byte_inputs.METADATA_KEY]
    model.ClearField("metadata_props")
    model.metadata_props.extend(said)
    model.graph.name = "g"  # an empty one is refused
    _drop_unused_sets(model, graphs)
    return bytes(model.SerializeToString(deterministic=True))


def _weights(graph: Any) -> Iterator[Any]:
    """What carries the name of a stored tensor; a sparse one is named by its values."""
    yield from graph.initializer
    yield from (each.values for each in graph.sparse_initializer)


def _short(graphs: list[Any], kept: set[str]) -> dict[str, str]:
    """A short name for each but the kept; those that most operators write come first."""
    used: dict[str, int] = {}
    for graph in graphs:
        stored = [each.name for each in (*graph.input, *graph.output, *_weights(graph))]
        for name in (*stored, *(name for node in graph.node for name in (*node.input, *node.output))):
            used[name] = used.get(name, 0) + 1
    wanted = sorted((name for name in used if name and name not in kept), key=lambda name: -used[name])
    free = (name for place in range(len(used) + len(kept)) if (name := _number(place)) not in kept)
    return dict(zip(wanted, free, strict=False))


def _number(place: int) -> str:
    written = DIGITS[place % len(DIGITS)]
    return _number(place // len(DIGITS) - 1) + written if place >= len(DIGITS) else written


def _rename(graph: Any, short: dict[str, str]) -> None:
    for each in (*graph.input, *graph.output, *_weights(graph)):
        each.name = short.get(each.name, each.name)
        each.ClearField("doc_string")
        each.ClearField("metadata_props")
    for place, node in enumerate(graph.node):
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                names[at] = short.get(name, name)
        node.name = _number(place)  # a profiler tells operators apart by it
        node.ClearField("doc_string")
        node.ClearField("metadata_props")


def _drop_unused_sets(model: Any, graphs: list[Any]) -> None:
    """Operator sets that the file asks for and that no operator is of. Those of its own functions stay."""
    used = {node.domain for graph in graphs for node in graph.node} | {each.domain for each in model.functions}
    used |= {each.domain for function in model.functions for each in function.opset_import}
    used |= STANDARD
    for place in reversed(range(len(model.opset_import))):
        if model.opset_import[place].domain not in used:
            del model.opset_import[place]
