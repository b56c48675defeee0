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
