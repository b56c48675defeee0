"""Render metric families in Prometheus's text format 0.0.4.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from edgekit.device.monitor import histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_LABEL_VALUES = 100
"""How many different values a label may have. Further ones are counted under `OTHER`, so that memory stays bounded."""
OTHER = "other"


@dataclass(frozen=True)
class Family:
    """A metric. `samples` are (suffix of the name, labels, value); `kind` is counter, gauge or histogram."""

    name: str
    kind: str
    help: str
    samples: Sequence[tuple[str, dict[str, str], float]]


class BoundedLabels:
    """Limits the values of a label: the first hundred are kept, all others become `other`."""

    def __init__(self, max_values: int = MAX_LABEL_VALUES) -> None:
        self._max_values, self._values = max_values, set[str]()

    def __call__(self, value: str) -> str:
        """Return the label value to count under."""
        if value not in self._values:
            if len(self._values) >= self._max_values:
                return OTHER
            self._values.add(value)
        return value


def histogram_samples(
    labels: dict[str, str], counts: Sequence[int], total_ms: float
) -> list[tuple[str, dict[str, str], float]]:
    """Return the samples of a latency histogram in seconds, from counts as `histogram.bucket_index` numbers them."""
    buckets = histogram.exposed_buckets(counts)
    return [
        *(("_bucket", {**labels, "le": bound}, count) for bound, count in buckets),
        ("_sum", labels, total_ms / 1e3),
        ("_count", labels, buckets[-1][1]),
    ]


def render(families: Iterable[Family]) -> bytes:
    """Render all families. Those with the same name are merged; of samples with equal labels, only the last is used."""
    heads: dict[str, str] = {}
    lines: dict[str, dict[str, str]] = {}
    for family in families:
        heads.setdefault(
            family.name, f"# HELP {family.name} {_plain(family.help)}\n# TYPE {family.name} {family.kind}\n"
        )
        family_lines = lines.setdefault(family.name, {})
        for suffix, labels, value in family.samples:
            family_lines[f"{family.name}{suffix}{_labels(labels)}"] = _number(value)
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
    if isinstance(value, int):  # True becomes 1
        return str(int(value))
    value = float(value)  # NumPy's floats have another repr
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(repr(value), repr(value))
