"""The graphs of an ONNX model: its own, and those inside operators such as If and Loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def graphs_of(graph: Any) -> Iterator[Any]:
    """The graph and those inside its operators, each before its own."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from graphs_of(inner)


def taken(graph: Any) -> list[str]:
    """What operators take and graphs give, each as often as it is: those inside take of the outer ones too."""
    return [
        name
        for each in graphs_of(graph)
        for names in (*(node.input for node in each.node), [one.name for one in each.output])
        for name in names
    ]


def drop_unused(graph: Any) -> None:
    """Remove the constants of a graph that nothing takes, there or inside its operators."""
    left = {*taken(graph), *(one.name for one in graph.input)}
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in left:
            del graph.initializer[place]
