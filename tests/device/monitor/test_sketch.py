"""Sketches of several devices are merged into one, which says what any of them would."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from edgekit.device.monitor import reference
from edgekit.device.monitor.monitor import Monitor
from edgekit.device.monitor.verdict import Verdict
from edgekit.runner.errors import InputError

from .watched import manifest, stream

MANIFEST = manifest("picture")
REFERENCE = reference.build_reference(MANIFEST, *stream(MANIFEST, 500, 0))


def sketch(seed: int, dark: bool = False, samples: int = 256) -> dict[str, Any]:
    found = Monitor(MANIFEST, REFERENCE)
    raws, outputs = stream(MANIFEST, samples, seed)
    found.observe(raws // 3 if dark else raws, outputs)
    made: dict[str, Any] = json.loads(json.dumps(found.sketch()))
    return made


def test_counts_are_added_and_healthy_stays_healthy() -> None:
    merged = Monitor.merge([sketch(seed) for seed in range(1, 5)])
    verdict = Verdict.of(MANIFEST, REFERENCE, merged)
    assert verdict.level == "healthy" and verdict.samples == 1024
    assert sum(merged["statistics"]["brightness"]["bins"]) == 1024
    assert sum(merged["classes"].values()) == 1024


def test_a_change_on_one_of_many_devices_is_seen_in_the_sum() -> None:
    merged = Monitor.merge([*(sketch(seed) for seed in range(1, 5)), sketch(9, dark=True)])
    verdict = Verdict.of(MANIFEST, REFERENCE, merged)
    assert verdict.level == "warning" and "darker" in " ".join(each.text for each in verdict.findings if each.alarm)


def test_evidence_is_less_where_it_was_chosen_among_many() -> None:
    alone = sketch(9, dark=True)
    merged = Monitor.merge([*(sketch(seed) for seed in range(1, 10)), alone])
    one, all_ = (each["statistics"]["brightness"]["latest"]["evidence"][0] for each in (alone, merged))
    assert all_ == pytest.approx(one - 1)


def test_the_order_of_merging_does_not_matter() -> None:
    parts = [sketch(1), sketch(2), sketch(9, dark=True)]
    assert Monitor.merge(parts)["samples"] == Monitor.merge([Monitor.merge(parts[:2]), parts[2]])["samples"]
    assert (
        Monitor.merge(parts)["statistics"]["noise"]["bins"] == Monitor.merge(parts[::-1])["statistics"]["noise"]["bins"]
    )


def test_what_is_no_sketch_of_one_bundle_is_refused() -> None:
    other = manifest("audio")
    strange = Monitor(other, reference.build_reference(other, *stream(other, 64, 0))).sketch()
    for parts in ([], [sketch(1), strange], [sketch(1), {"statistics": {}}], [{}, {}], [{"a": 1}]):
        with pytest.raises(InputError):
            Monitor.merge(parts)
    with pytest.raises(InputError, match="something other than a sketch of this bundle"):
        Verdict.of(MANIFEST, REFERENCE, strange)


def test_sketches_of_two_versions_of_a_bundle_are_kept_apart() -> None:
    newer = reference.build_reference(MANIFEST, *stream(MANIFEST, 500, 77))
    other = Monitor(MANIFEST, newer)
    other.observe(*stream(MANIFEST, 256, 3))
    with pytest.raises(InputError, match="different bundles"):
        Monitor.merge([sketch(1), other.sketch()])
    with pytest.raises(InputError, match="something other than a sketch of this bundle"):
        Verdict.of(MANIFEST, REFERENCE, other.sketch())


@pytest.mark.parametrize("bad", [None, "x", [], {}, [1], 10**400, float("nan")])
def test_an_edited_sketch_is_refused_or_compared(bad: Any) -> None:
    valid = sketch(1)
    valid["recent"] = {"refused": 3, "of": 9, "why": "x"}
    valid["canary"] = {"ok": True, "reason": None, "runs": 1, "failures": 0, "last_success_s": 1.0}
    inner = [("recent", "refused"), ("recent", "of"), ("statistics", "noise"), ("canary", "ok"), ("classes", "star")]
    for places in [(name,) for name in valid] + inner:
        edited = json.loads(json.dumps(valid))
        where = edited
        for each in places[:-1]:
            where = where[each]
        where[places[-1]] = bad
        with suppress(InputError):
            assert Verdict.of(MANIFEST, REFERENCE, edited).reason
        with suppress(InputError):
            assert Verdict.of(MANIFEST, REFERENCE, Monitor.merge([valid, edited])).reason
