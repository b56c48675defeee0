"""The reference of a bundle for the monitor: ranks in it, its size, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from edgekit.device.monitor import reference
from edgekit.runner.errors import BundleError

from .watched import CASES, manifest, stream


def recorded(name: str, samples: int = 300) -> dict[str, Any]:
    made = manifest(name)
    return reference.build_reference(made, *stream(made, samples, 0))


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_as_it_was_written_and_is_small(name: str) -> None:
    made, found = manifest(name), recorded(name)
    data = reference.encode(found)
    read = reference.read_reference(data, made)
    assert len(data) < 1300 * max(1, len(read.names)) + 500
    assert read.names == reference.all_statistic_names(made) == list(found["statistics"])
    assert read.samples == 300
    if read.classes is not None:
        assert list(read.classes) == made.labels


def test_ranks_of_the_reference_itself_are_even() -> None:
    made = manifest("vector")
    samples, outputs = stream(made, 300, 0)
    read = reference.parse_reference(reference.build_reference(made, samples, outputs), made)
    ranks = read.ranks(np.concatenate([samples, np.zeros((300, 4))], axis=1, dtype=np.float64))[:, :5]
    expected = (samples.argsort(axis=0).argsort(axis=0) + 1) / 301
    assert np.abs(ranks - expected).max() < 0.02


def test_equal_values_share_the_middle_rank_and_others_lie_outside() -> None:
    made = manifest("vector")
    samples, outputs = stream(made, 300, 0)
    samples[:] = 0.25
    read = reference.parse_reference(reference.build_reference(made, samples, outputs), made)
    width = len(read.names)
    assert read.ranks(np.full((1, width), 0.25 + 1e-9))[0, 0] == pytest.approx(0.5)
    assert read.ranks(np.full((1, width), 0.3))[0, 0] == pytest.approx(1 - 0.5 / 301)
    assert read.ranks(np.full((1, width), 0.2))[0, 0] == pytest.approx(0.5 / 301)


def without(values: dict[str, Any], *path: str) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(values))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return changed


@pytest.mark.parametrize(
    "change",
    [
        lambda values: without(values, "samples"),
        lambda values: without(values, "statistics", "brightness"),
        lambda values: without(values, "classes"),
        lambda values: {**values, "samples": 0},
        lambda values: {**values, "samples": "many"},
        lambda values: {**values, "samples": 10**400},
        lambda values: {**values, "classes": {"circle": 10**400, "square": 0, "star": 0}},
        lambda values: {**values, "format": 2},
        lambda values: {**values, "classes": {"circle": -1, "square": 0, "star": 0}},
        lambda values: {**values, "statistics": []},
        lambda values: {**values, "statistics": {**values["statistics"], "noise": {"quantiles": [2, 1] * 64 + [3]}}},
        lambda values: {**values, "statistics": {**values["statistics"], "noise": {"quantiles": [1]}}},
        lambda values: {**values, "statistics": {**values["statistics"], "noise": {"quantiles": ["x"] * 129}}},
        lambda values: [values],
    ],
)
def test_what_is_no_reference_is_refused(change: Any) -> None:
    data = json.dumps(change(recorded("classification"))).encode()
    with pytest.raises(BundleError, match=r"reference\.json"):
        reference.read_reference(data, manifest("classification"))


def test_what_is_no_json_is_refused() -> None:
    for data in (b"", b"{", b"[" * 100_000, b"\xff"):
        with pytest.raises(BundleError, match=r"reference\.json"):
            reference.read_reference(data, manifest("raw"))


def test_a_reference_of_another_model_is_refused() -> None:
    with pytest.raises(BundleError, match="not a reference of this model"):
        reference.parse_reference(recorded("audio"), manifest("window"))
