"""A page of metrics, read by Prometheus's own client library."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(page: bytes) -> Series:
    """Every sample by its name and labels; fails where a line is none, or a sample stands there twice."""
    families = list(text_string_to_metric_families(page.decode()))
    samples = [sample for family in families for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    lines = [line for line in page.decode().split("\n") if line and not line.startswith("#")]
    assert len(found) == len(samples) == len(lines)
    assert page.endswith(b"\n") and len({family.name for family in families}) == len(families)
    return found


def value(page: bytes, name: str, **labels: str) -> float:
    """The one sample of that name that has these labels, and maybe others."""
    labelled = frozenset(labels.items())
    [found] = [number for (its, has), number in parsed(page).items() if its == name and labelled <= has]
    return found


def names(page: bytes) -> set[str]:
    return {name for name, _ in parsed(page)}
