"""The file that stands for a trial on a target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.search.files import Content
from edgekit.search.measuring import Latency, Measured


@dataclass(frozen=True)
class Chosen:
    """A file with everything that is told of it; `interval` is that of the accuracy."""

    name: str
    accuracy: float
    interval: list[float]
    bound_pp: float
    bytes: int
    content: Content
    latency: Latency


def choose(rows: Sequence[dict[str, Any]], measured: Measured) -> Chosen:
    """The fastest of the rows of `files.evaluate`, all measured; of equals the smallest, then the first name."""
    every = []
    for row in rows:
        content = Content.from_json(row["content"])
        latency = measured.of(content)
        assert latency is not None
        figures = {name: row[name] for name in ("name", "accuracy", "interval", "bound_pp", "bytes")}
        every.append(Chosen(**figures, content=content, latency=latency))
    return min(every, key=lambda each: (each.latency.ratio, each.bytes, each.name))
