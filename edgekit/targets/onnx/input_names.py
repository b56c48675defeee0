"""Names of several inputs, which are the user's own: what the exporter called so, an operator or a weight, gives way.

Otherwise an input `output`, `linear` or `head.weight` would be a second definition of that name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgekit.targets.onnx.subgraphs import graphs_of


def placeholders(names: Sequence[str]) -> list[str]:
    """What the exporter calls the inputs, in their order, until `give`."""
    return [f"edgekit::input_{place}" for place in range(len(names))]


def give(model: Any, names: Sequence[str]) -> None:
    """Call the inputs of an exported model so, in place."""
    graphs = list(graphs_of(model.graph))
    known = {name for graph in graphs for name in _names(graph)}
    called = dict(zip(placeholders(names), names, strict=True))
    for name in names:
        if name in known:
            called[name] = _unused(name, known | set(names))
            known.add(called[name])
    for graph in graphs:
        _rename(graph, called)


def _ports(graph: Any) -> Iterator[Any]:
    """All that has a name which is a tensor's."""
    for part in (graph.input, graph.output, graph.initializer, graph.value_info):
        yield from part


def _names(graph: Any) -> Iterator[str]:
    yield from (each.name for each in _ports(graph))
    yield from (name for node in graph.node for name in node.output)


def _unused(name: str, known: set[str]) -> str:
    while name in known:
        name += "_"
    return name


def _rename(graph: Any, called: Mapping[str, str]) -> None:
    for each in _ports(graph):
        each.name = called.get(each.name, each.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = called.get(name, name)
