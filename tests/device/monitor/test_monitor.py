"""The monitor, for every task and kind of sample: unchanged streams are healthy, and changes are named in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from edgekit.device.monitor import exposition, reference
from edgekit.device.monitor.monitor import Monitor
from edgekit.device.monitor.verdict import Verdict
from edgekit.runner import bundle, load
from edgekit.runner.errors import BackendError, InputError, ResourceError
from tests.runner import flat
from tests.runner.bundle.test_bundle import repack
from tests.runner.conftest import npy

from .watched import CASES, manifest, stream, with_reference


def monitor(name: str, samples: int = 1000, every_s: float = 0.0) -> Monitor:
    made = manifest(name)
    return Monitor(made, reference.build_reference(made, *stream(made, samples, 0)), every_s)


@pytest.mark.parametrize("name", CASES)
def test_every_task_and_kind_is_watched(name: str) -> None:
    healthy, moved = monitor(name), monitor(name)
    healthy.observe(*stream(healthy.manifest, 512, seed=1))
    assert healthy.verdict().level == "healthy", healthy.verdict()
    assert healthy.verdict().samples == 512
    moved.observe(*stream(moved.manifest, 512, seed=1, shift=2.0))
    if name not in ("classification", "segmentation", "audio", "window", "vector", "picture", "text", "tensors"):
        assert moved.verdict().level == "warning", moved.verdict()  # to the others a common shift is none
    text = json.dumps(healthy.sketch())
    assert len(text) < 300 * len(healthy.reference.names) + 1000


def changed(name: str, change: object) -> Verdict:
    found = monitor(name)
    samples, outputs = stream(found.manifest, 512, seed=1)
    found.observe(change(samples).astype(samples.dtype), outputs)  # type: ignore[operator]
    return found.verdict()


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("picture", lambda x: x * 0.4, "inputs are darker than in validation: brightness"),
        ("picture", lambda x: np.clip(x * 1.8, 0, 255), "brighter"),
        ("picture", lambda x: (x + np.roll(x, 1, 2) + np.roll(x, 2, 2)) / 3, "less sharp"),
        ("picture", lambda x: x * np.array([1.0, 1.0, 0.6]), "less blue"),
        ("audio", lambda x: x * 0.3, "quieter"),
        ("audio", lambda x: np.repeat(x[:, ::2], 2, axis=1), "duller"),
        ("audio", lambda x: np.clip(x * 4, -1, 1), "more clipped"),
        ("window", lambda x: x * np.array([1.0, 0.0, 1.0]), "missing more columns"),
        ("window", lambda x: x + np.array([0.0, 0.0, 2.0]), "column az is higher"),
        ("vector", lambda x: x * 0.5, "column 0 is lower"),
        ("text", lambda x: np.where(np.arange(12) < 3, x, 0), "shorter"),
    ],
)
def test_a_change_is_reported_in_words(name: str, change: object, words: str) -> None:
    verdict = changed(name, change)
    assert verdict.level == "warning"
    assert words in " ".join(each.text for each in verdict.findings if each.alarm)
    assert verdict.reason.startswith(verdict.findings[0].text)


def test_less_confident_answers_are_found_and_reported() -> None:
    found = monitor("classification")
    samples, outputs = stream(found.manifest, 512, seed=1)
    found.observe(samples, outputs * 0.4)
    assert found.verdict().level == "warning"
    assert "less sure than in validation" in " ".join(each.text for each in found.verdict().findings)


def test_a_class_that_is_answered_too_often_is_named() -> None:
    found = monitor("classification")
    samples, outputs = stream(found.manifest, 512, seed=1)
    found.observe(samples, outputs + np.float32([0, 0, 1.5]))
    assert any(each.alarm and each.text.startswith("star is answered more often") for each in found.verdict().findings)


def test_a_verdict_waits_for_64_samples() -> None:
    found = monitor("raw")
    found.observe(*stream(found.manifest, 63, seed=1))
    assert (found.verdict().level, found.verdict().health) == ("early", -1)
    found.observe(*stream(found.manifest, 1, seed=2))
    assert (found.verdict().level, found.verdict().health) == ("healthy", 0)


def test_samples_one_by_one_give_the_verdict_of_all_at_once() -> None:
    one, all_ = monitor("raw"), monitor("raw")
    samples, outputs = stream(one.manifest, 200, seed=1)
    for raw, output in zip(samples, outputs):
        one.answered(raw, output, None)
    all_.observe(samples, outputs)
    for name, seen in all_.sketch()["statistics"].items():
        also = one.sketch()["statistics"][name]
        assert also["bins"] == seen["bins"] and also["sum"] == pytest.approx(seen["sum"], rel=1e-3)


def test_samples_are_left_out_that_come_too_soon() -> None:
    found = monitor("raw", every_s=3600)
    for raw, output in zip(*stream(found.manifest, 100, seed=1)):
        found.answered(raw, output, None)
    assert found.verdict().samples == 1


def test_a_sketch_says_the_same_on_another_machine() -> None:
    found = monitor("picture")
    samples, outputs = stream(found.manifest, 512, seed=1)
    found.observe(samples // 3, outputs)
    sketch = json.loads(json.dumps(found.sketch()))
    assert Verdict.of(found.manifest, found.reference, sketch) == found.verdict()


def test_many_rejected_inputs_give_a_warning() -> None:
    found = monitor("raw")
    found.observe(*stream(found.manifest, 200, seed=1))
    for _ in range(5):
        found.refused(InputError("sample: got float32[3]"))
    assert found.verdict().level == "healthy"
    for _ in range(20):
        found.refused(InputError("sample: got float32[3]"))
    assert found.verdict().level == "warning"
    assert "got no answer" in found.verdict().reason and "got float32[3]" in found.verdict().reason


def test_counts_are_kept_apart() -> None:
    found = monitor("raw")
    found.refused(InputError("bad"))
    found.refused(BackendError("broken"))
    found.dropped(3)
    sketch = found.sketch()
    assert (sketch["refused"], sketch["failed"], sketch["dropped"]) == (1, 1, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [("every_s", -1), ("every_s", "often"), ("canary_s", float("nan")), ("false_alarms_per", 0), ("every_s", True)],
)
def test_options_that_cannot_be_are_refused(name: str, value: object) -> None:
    made = manifest("raw")
    known = reference.build_reference(made, *stream(made, 64, 0))
    with pytest.raises(InputError, match=name):
        Monitor(made, known, **{name: value})  # type: ignore[arg-type]


def test_samples_of_another_shape_are_refused() -> None:
    found = monitor("raw")
    samples, outputs = stream(found.manifest, 4, seed=1)
    with pytest.raises(InputError, match="observe: got samples"):
        found.observe(samples[:, 1:], outputs)
    with pytest.raises(InputError, match="observe: got samples"):
        found.observe(samples, outputs[1:])


def test_a_canary_needs_a_model() -> None:
    with pytest.raises(InputError, match="no model is attached"):
        monitor("raw").canary()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of pictures with a reference."""
    path = flat.write(tmp_path_factory.mktemp("watched") / "flat.edge.zip", flat.PICTURE)
    return with_reference(path, flat.examples(flat.PICTURE, 400))


def test_a_loaded_bundle_watches_itself(watched: Path) -> None:
    model = load(watched, trial=False, monitor=True)
    for raw in flat.examples(flat.PICTURE, 200):
        model.predict(raw)
    assert model.monitor.verdict().level == "healthy"
    for raw in flat.examples(flat.PICTURE, 200):
        model.predict(raw // 3)
    verdict = model.monitor.verdict()
    assert verdict.level == "warning" and "darker" in " ".join(each.text for each in verdict.findings)


def test_nothing_is_monitored_by_default(watched: Path) -> None:
    model = load(watched, trial=False)
    assert model.monitor is None and not model.observers


def test_a_bundle_without_a_reference_is_not_watched(bundles: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="has no reference"):
        load(bundles["onnx"], trial=False, monitor=True)


def test_a_monitor_is_none_of_another_kind(watched: Path) -> None:
    with pytest.raises(InputError, match="monitor: got 'yes'"):
        load(watched, trial=False, monitor="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("what", [{"monitor": "yes"}, {"monitor": True}, {"keep": "/dev/null/kept"}, {"keep": ""}])
def test_what_cannot_watch_is_refused_before_anything_is_measured(
    what: dict[str, Any], bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The trial takes half a minute on a small board."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    messages: list[str] = []
    with pytest.raises((InputError, ResourceError)):
        load(bundles["onnx"], on_progress=lambda line, lasting: messages.append(line), **what)
    assert messages == []


def test_golden_vectors_are_answered_while_the_model_is_used(watched: Path) -> None:
    model = load(watched, trial=False)
    model.observers.add(found := Monitor.of(model, canary_s=1e-6))
    alone = load(watched, trial=False)
    for raw in flat.examples(flat.PICTURE, 20):
        np.testing.assert_array_equal(model.predict(raw).scores, alone.predict(raw).scores)
    canary = found.verdict().canary
    assert canary is not None and canary["ok"] and canary["runs"] == 20 and canary["failures"] == 0
    result = found.canary()
    assert result.ok and result.vectors == 4 and result.max_abs_delta <= result.atol


def test_answers_other_than_recorded_are_wrong(watched: Path, tmp_path: Path) -> None:
    read = bundle.read(watched)
    other = tmp_path / "other.edge.zip"
    name = read.manifest.golden["outputs"]
    _, outputs = load(watched, trial=False).golden()
    bundle.write(other, read.manifest, {**read.members, name: npy(outputs[::-1].copy())})
    model = load(other, trial=False, monitor=True)
    assert not model.monitor.canary().ok
    verdict = model.monitor.verdict()
    assert verdict.level == "wrong" and verdict.health == 2
    assert verdict.reason.startswith("golden samples are not answered as recorded: golden sample")


def test_one_wrong_golden_vector_is_wrong_while_others_are_answered_well(watched: Path, tmp_path: Path) -> None:
    read = bundle.read(watched)
    other = tmp_path / "other.edge.zip"
    _, outputs = load(watched, trial=False).golden()
    outputs = np.array(outputs)
    outputs[1] += 9
    bundle.write(other, read.manifest, {**read.members, read.manifest.golden["outputs"]: npy(outputs)})
    model = load(other, trial=False)
    model.observers.add(found := Monitor.of(model, canary_s=1e-6))
    levels = []
    for raw in flat.examples(flat.PICTURE, 9):
        model.predict(raw)
        levels.append(found.verdict().level)
    assert levels == ["early", *8 * ["wrong"]]
    assert "golden sample 1" in found.verdict().reason


def test_figures_are_what_prometheus_reads(watched: Path) -> None:
    model = load(watched, trial=False, monitor=True)
    for raw in flat.examples(flat.PICTURE, 128):
        model.predict(raw // 3)
    model.monitor.canary()
    text = exposition.render(model.monitor.figures()).decode()
    found = {each.name: each for each in text_string_to_metric_families(text)}
    assert found["edgekit_health"].samples[0].value == 1
    alarms = {each.labels["statistic"]: each.value for each in found["edgekit_drift_alarm"].samples}
    assert alarms["brightness"] == 1 and set(alarms) >= set(model.monitor.reference.names)
    assert found["edgekit_watched_samples"].samples[0].value == 128
    assert found["edgekit_canary_runs"].samples[0].value == 4
    assert found["edgekit_canary_last_success_timestamp_seconds"].samples[0].value > 1.7e9
    assert {each.labels["statistic"] for each in found["edgekit_drift"].samples} == set(alarms)


@pytest.mark.parametrize("member", [b"{}", b"nothing", b'{"format": 1, "samples": 3, "statistics": {}}\n'])
def test_a_damaged_reference_is_refused(watched: Path, tmp_path: Path, member: bytes) -> None:
    read = bundle.read(watched)
    other = tmp_path / "other.edge.zip"
    bundle.write(other, read.manifest, {**read.members, reference.MEMBER: member})
    with pytest.raises(bundle.BundleError, match=r"reference\.json"):
        load(other, trial=False, monitor=True)


def test_a_reference_that_was_changed_is_not_even_read(watched: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.edge.zip"
    other.write_bytes(watched.read_bytes())
    repack(other, lambda entries: [(entry, data.replace(b"brightness", b"briqhtness")) for entry, data in entries])
    with pytest.raises(bundle.TrustError):
        load(other, trial=False, monitor=True)
