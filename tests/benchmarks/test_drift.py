"""`python -m benchmarks.drift`: its drifts, streams and harness. How early something is found is not tested."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.drift import detectors, ours, page, pools, scenarios, streams
from benchmarks.drift.detectors import Alarm
from benchmarks.drift.drifts import Drift, images, sounds, windows
from benchmarks.drift.measured import OURS, Bench
from benchmarks.drift.peers import online
from benchmarks.drift.plan import Plan
from benchmarks.drift.pools import Pool
from benchmarks.drift.subjects import Subject, digits, motion, words
from tests import requirements

ROOT = Path(__file__).parents[2]
TINY = Plan(quick=True, seeds=2, after=256, line=600, independent=1, alike=1, long=0, slow=0)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return digits.load()


def _samples(kind: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    if kind == "words":
        return words.spoken(np.arange(6), rng)
    if kind == "motion":
        return motion.moved(np.arange(40) % 4, rng)
    return rng.integers(40, 200, (6, 32, 32, 3) if kind == "colour" else (6, 8, 8, 1)).astype(np.uint8)


EVERY = [
    pytest.param(kind, drift, id=f"{kind}: {drift.name}")
    for kind, all_ in (("colour", images.COLOUR), ("grey", images.GREY), ("words", sounds.ALL), ("motion", windows.ALL))
    for drift in all_
]


def test_there_are_at_least_twenty_drifts() -> None:
    assert len(EVERY) >= 20


@pytest.mark.parametrize(("kind", "drift"), EVERY)
@pytest.mark.parametrize("strength", ["weak", "strong"])
def test_a_drift_changes_samples_and_keeps_shape_type_and_range(kind: str, drift: Drift, strength: str) -> None:
    raws = _samples(kind)
    before = raws.copy()
    changed = drift.apply(raws, strength, 3)
    assert changed.shape == raws.shape and changed.dtype == raws.dtype
    assert (raws == before).all(), "the samples that were given stay as they are"
    assert (changed != raws).any()
    limit = {"words": 1.0, "motion": windows.LIMIT}.get(kind, 255)
    assert np.abs(changed.astype(np.float64)).max() <= limit


@pytest.mark.parametrize(("kind", "drift"), EVERY)
def test_a_drift_is_the_same_for_the_same_seed(kind: str, drift: Drift) -> None:
    raws = _samples(kind)
    assert (drift.apply(raws, "weak", 3) == drift.apply(raws, "weak", 3)).all()


@pytest.mark.parametrize("drift", [images.COLOUR[7], sounds.ALL[5], windows.ALL[2]], ids=lambda drift: drift.name)
def test_noise_differs_between_seeds(drift: Drift) -> None:
    kind = {8.0: "colour"}.get(drift.weak, "words" if drift in sounds.ALL else "motion")
    raws = _samples("colour" if drift in images.COLOUR else kind)
    assert (drift.apply(raws, "strong", 3) != drift.apply(raws, "strong", 4)).any()


@pytest.mark.parametrize("drift", [images.COLOUR[0], sounds.ALL[0], windows.ALL[1]], ids=lambda drift: drift.name)
def test_a_share_of_nothing_changes_nothing(drift: Drift) -> None:
    kind = "colour" if drift in images.COLOUR else "words" if drift in sounds.ALL else "motion"
    raws = _samples(kind)
    assert np.allclose(drift.apply(raws, "strong", 3, share=0.0), raws)


@pytest.mark.parametrize("load", [digits.load, motion.load], ids=["digits", "motion"])
def test_a_subject_has_a_model_that_learnt_something(load: object) -> None:
    loaded: Subject = load(quick=True)  # type: ignore[operator]
    assert loaded.accuracy() > 0.85
    assert loaded.outputs.shape == (len(loaded.raws), len(loaded.manifest.labels))
    assert loaded.unknown.shape[1:] == loaded.raws.shape[1:]


def _pool(classes: int = 4, samples: int = 400) -> Pool:
    """Samples that are their own numbers: their statistic is what they are."""
    raws = np.arange(samples, dtype=np.float32)[:, None]
    labels = np.arange(samples) % classes
    return Pool(raws, np.eye(classes, dtype=np.float32)[labels], labels, lambda x, y: x)


@pytest.mark.parametrize("order", list(streams.ORDERS))
def test_an_order_is_seeded_and_shows_each_sample_about_as_often(order: str) -> None:
    pool, make = _pool(), streams.ORDERS[order][1]
    drawn = make(pool, 40_000, 5)
    assert (drawn.place == make(pool, 40_000, 5).place).all()
    assert (drawn.place != make(pool, 40_000, 6).place).any()
    quarters = np.bincount(drawn.place * 4 // len(pool.raws), minlength=4) / len(drawn)
    assert quarters == pytest.approx(0.25, abs=0.1)


def test_neighbours_are_alike_where_the_order_says_so() -> None:
    pool = _pool()

    def steps(order: str) -> float:
        return float(np.abs(np.diff(streams.ORDERS[order][1](pool, 5_000, 1).place)).mean())

    assert steps("neighbours") < steps("independent") / 4
    assert steps("video") < steps("independent") / 10
    stays = np.diff(pool.classes[streams.runs(pool, 5_000, 1).place]) == 0
    assert stays.mean() > 0.9


def test_a_sudden_drift_begins_at_the_onset_and_a_slow_one_grows() -> None:
    sound = _pool()
    drifted = Pool(sound.raws + 1000, sound.outputs, sound.classes, sound.measure)
    stream = streams.sudden(sound, drifted, 100, 3)
    assert streams.BEFORE[0] <= stream.onset < streams.BEFORE[1]
    assert stream.table()[: stream.onset].max() < 1000 <= stream.table()[stream.onset :].min()
    levels = tuple(Pool(sound.raws + 1000 * by, sound.outputs, sound.classes, sound.measure) for by in (1, 2))
    table = streams.slow(sound, levels, streams.RAMP, 3).table()[:, 0]
    half = len(table) - streams.RAMP // 2
    assert 1000 <= table[half - 1] < 2000 <= table[half]


def test_parts_of_a_stream_are_its_samples_in_order() -> None:
    pool = _pool()
    stream = streams.independent(pool, 3 * pools.STEP + 1, 2)
    parts = list(stream.parts())
    assert [end for end, _, _ in parts] == [pools.STEP, 2 * pools.STEP, 3 * pools.STEP, len(stream)]
    assert (np.concatenate([raws for _, raws, _ in parts]) == pool.raws[stream.place]).all()


def test_an_outcome_counts_alarms_before_the_onset_as_false() -> None:
    sound = _pool()
    wrong = Pool(sound.raws, np.roll(sound.outputs, 1, axis=1), sound.classes, sound.measure)
    stream = streams.sudden(sound, wrong, 100, 3)
    found = detectors.outcome([Alarm(9, "a"), Alarm(stream.onset + 40, "b")], stream, 1.0)
    missed = detectors.outcome([], stream, 1.0)
    assert (found.delays, found.by, found.false, found.wrong) == ((40,), ("b",), 1, (40.0,))
    assert (missed.delays, missed.found, missed.wrong) == ((None,), 0, (100.0,))
    both = detectors.together([found, missed, missed])
    assert (both.found, both.delay, both.mostly_by) == (1, None, "b")


def test_the_monitor_finds_a_strong_drift_and_nothing_in_sound_samples(subject: Subject) -> None:
    sound = pools.sound(subject, ours.measure(subject.manifest))
    blurred = images.GREY[2].apply(sound.raws, "strong", 0)
    drifted = pools.changed(subject, sound, blurred, sound.classes)
    watch = ours.watcher(subject.manifest, ours.recorded(subject, 0))
    stream = streams.sudden(sound, drifted, 512, 1)
    alarms = watch(stream)
    assert len(alarms) == 1 and alarms[0].at > stream.onset
    assert watch(streams.independent(sound, 2_000, 1)) == []


@pytest.mark.parametrize("kind", [online.ADWIN, online.PAGE_HINKLEY, online.KSWIN])
def test_a_peer_finds_the_same_drift(subject: Subject, kind: str) -> None:
    requirements.package("river")
    sound = pools.sound(subject, ours.measure(subject.manifest))
    blurred = images.GREY[2].apply(sound.raws, "strong", 0)
    drifted = pools.changed(subject, sound, blurred, sound.classes)
    known = online.Reference(sound.table[ours.validation(subject, 0)], ours.names(subject.manifest))
    stream = streams.sudden(sound, drifted, 512, 1)
    alarms = online.watcher(kind, online.DEFAULTS[kind], known, True)(stream)
    assert alarms and alarms[-1].at > stream.onset and alarms[-1].by == "confidence"


def test_ranks_lie_in_the_middle_of_ties() -> None:
    known = online.Reference(np.array([[0.0], [1.0], [1.0], [3.0]]), ["confidence"])
    assert known.ranks(np.array([[-1.0], [1.0], [2.0], [4.0]]))[:, 0] == pytest.approx([0, 0.5, 0.75, 1])


def test_every_subject_meets_class_shift_and_an_unknown_class(subject: Subject) -> None:
    sound = pools.sound(subject, ours.measure(subject.manifest))
    met = list(scenarios.of(subject, sound, 100))
    assert {each.kind for each in met} >= {"sudden", "class shift", "new class"}
    new = next(each for each in met if each.kind == "new class" and each.strength == "strong")
    assert new.accuracy < subject.accuracy() - 0.3
    shift = next(each for each in met if each.kind == "class shift" and each.strength == "strong")
    stream = shift.stream(1)
    last = sound.classes[stream.place[stream.onset :]] == sound.classes.max()
    assert last.mean() == pytest.approx(scenarios.SHIFTED["strong"], abs=0.2)


def test_the_page_has_every_drift_and_every_order(subject: Subject) -> None:
    bench = Bench(subject, TINY)
    bench.monitor()
    facts = {"cpu": "a processor", "date": "2026-01-01", "cpu_s": 60.0}
    text = page.text([bench.result], TINY, facts)
    assert all(drift.name in text for drift in subject.drifts)
    assert all(order in text for order in streams.ORDERS)
    assert f"| {OURS} |" in text
    assert "nan" not in text and "inf " not in text


@pytest.mark.parametrize("words_", [("--only", "nothing"), ("--rounds", "3")])
def test_a_wrong_option_is_refused(words_: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "benchmarks.drift", *words_]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert words_[1] in done.stderr and "Traceback" not in done.stderr
