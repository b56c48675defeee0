"""Prometheus's text format 0.0.4: families of figures in, bytes for a scraper out.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgekit.device.monitor import histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LABEL_VALUES = 100
"""Different values of a label; what comes after them is counted under `OTHER`, or memory would have no bound."""
OTHER = "other"


@dataclass(frozen=True)
class Family:
    """A metric. `samples` are (suffix of the name, labels, value); `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: Sequence[tuple[str, dict[str, str], float]]


class BoundedLabels:
    """The values of a label: the first hundred stand for themselves, all others are `other`."""

    def __init__(self, most: int = MAX_LABEL_VALUES) -> None:
        self._most, self._seen = most, set[str]()

    def __call__(self, value: str) -> str:
        """What the value is counted under."""
        if value not in self._seen:
            if len(self._seen) >= self._most:
                return OTHER
            self._seen.add(value)
        return value


def histogram_samples(
    labels: dict[str, str], counts: Sequence[int], total_ms: float
) -> list[tuple[str, dict[str, str], float]]:
    """The samples of a latency histogram in seconds, of counts as `histogram.place` numbers them."""
    shown = histogram.exposed_buckets(counts)
    return [
        *(("_bucket", {**labels, "le": bound}, count) for bound, count in shown),
        ("_sum", labels, total_ms / 1e3),
        ("_count", labels, shown[-1][1]),
    ]


def render(families: Iterable[Family]) -> bytes:
    """All of them. Families of one name become one; of two samples with the same labels the last one stands."""
    heads: dict[str, str] = {}
    lines: dict[str, dict[str, str]] = {}
    for family in families:
        heads.setdefault(
            family.name, f"# HELP {family.name} {_plain(family.help)}\n# TYPE {family.name} {family.kind}\n"
        )
        mine = lines.setdefault(family.name, {})
        for suffix, labels, value in family.samples:
            mine[f"{family.name}{suffix}{_labels(labels)}"] = _number(value)
    parts = [head + "".join(f"{key} {value}\n" for key, value in lines[name].items()) for name, head in heads.items()]
    return "".join(parts).encode("utf-8", "replace")


def _labels(labels: dict[str, str]) -> str:
    inner = ",".join(f'{name}="{_quoted(value)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _plain(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(value: str) -> str:
    return _plain(value).replace('"', '\\"')


def _number(value: float) -> str:
    if isinstance(value, int):  # of True, 1
        return str(int(value))
    value = float(value)  # numpy's own are written otherwise
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))
