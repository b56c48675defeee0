"""Validation windows sequence in the order of time: which windows, in which order, and what cannot be sequence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ConfigError
from edgekit.data import Data, load, parse
from edgekit.stages.bundle import streams
from edgekit.stages.bundle.config import BundleConfig
from tests.data.sources.test_csv_windows import folder
from tests.data.sources.test_wav_track import RATE_HZ, WINDOW, recorded, recording


def config(**values: Any) -> BundleConfig:
    return BundleConfig.model_validate({"smoothing": "auto", **values})


@pytest.fixture
def street(tmp_path: Path) -> tuple[Path, Data]:
    parts = [part for each in range(40) for part in ((0.15, "ab"[each % 2]), (0.2, ""))]
    path = recording(tmp_path / "street.wav", parts)
    return path, track(path)


def track(path: Path, **more: Any) -> Data:
    section = {"source": "wav_track", "path": str(path), "rate_hz": RATE_HZ, "seconds": 0.05, "stride_s": 0.025}
    return load(parse({**section, "background": "street", "calibration_samples": 6, **more}))


def test_windows_of_a_track_come_in_the_order_of_the_recording(street: tuple[Path, Data]) -> None:
    """And within a piece each begins one hop behind the one before, as a stream's windows do."""
    path, data = street
    sequence = streams.window_sequence(data, config())
    assert sequence is not None and (sequence.hop, sequence.hop_s, sequence.span_windows) == (WINDOW // 2, 0.025, 2)
    assert sorted(sequence.indices) == list(range(len(data.validation)))
    whole = np.frombuffer(path.read_bytes()[-2 * recorded(path) :], "<i2").astype(np.float32) / 32768
    found = []
    for x in data.validation.x[sequence.indices]:
        [start] = [at for at in np.flatnonzero(whole == x[0]) if np.array_equal(whole[at : at + WINDOW], x)]
        found.append(int(start))
    assert found == sorted(found)
    for place in range(1, len(found)):
        together = sequence.pieces[place] == sequence.pieces[place - 1]
        if together:
            assert found[place] - found[place - 1] == sequence.hop
            assert sequence.labels[place] == sequence.labels[place - 1]
    assert data.classes[sequence.background or 0] == "street"


def test_recordings_of_sensors_follow_one_another_whole_and_mixed(tmp_path: Path) -> None:
    values = {"source": "csv_windows", "path": str(folder(tmp_path / "worn", each=24, rows=320)), "window": 64}
    data = load(parse({**values, "stride": 32, "calibration_samples": 20}))
    sequence = streams.window_sequence(data, config(stream={"rows_per_s": 50.0}))
    assert sequence is not None and sequence.background is None and (sequence.hop, sequence.hop_s) == (32, 0.64)
    ordered = data.validation.x[sequence.indices]
    for place in range(1, len(ordered)):
        if sequence.pieces[place] == sequence.pieces[place - 1]:
            assert np.array_equal(ordered[place, :32], ordered[place - 1, 32:])
    pieces = int(sequence.pieces[-1]) + 1
    assert pieces == len(np.unique(data.validation.groups if data.validation.groups is not None else []))
    labels = [int(sequence.labels[sequence.pieces == piece][0]) for piece in range(pieces)]
    assert len(set(labels)) > 1 and labels != sorted(labels), "not one class behind the other"


def test_the_order_is_part_of_the_datas_digest(street: tuple[Path, Data]) -> None:
    path, data = street
    assert track(path).digest == data.digest
    assert track(path, background="other").digest != data.digest
    moved = path.with_name("moved.wav")
    moved.write_bytes(path.read_bytes())
    lines = path.with_suffix(".txt").read_text().splitlines(keepends=True)
    moved.with_suffix(".txt").write_text("".join(lines[:-1]))
    assert track(moved).digest != data.digest


def test_what_has_no_order_in_time_is_refused_in_one_line(street: tuple[Path, Data]) -> None:
    path, data = street
    for unknown in (track(path, limit=100), replace(data, validation=replace(data.validation, starts=None))):
        assert streams.window_sequence(unknown, config()) is None
        with pytest.raises(ConfigError, match="have no order in time .single clips, rows or arrays, or data.limit"):
            streams.check_options(unknown, config())
        streams.check_options(unknown, config(smoothing={"method": "majority", "windows": 3}))
        streams.check_options(unknown, config(smoothing=None))


def test_what_does_not_fit_the_data_is_refused(street: tuple[Path, Data]) -> None:
    _, data = street
    streams.check_options(data, config())
    with pytest.raises(ConfigError, match="bundle.stream.background: got 'traffic'; the classes are a, b, street"):
        streams.check_options(data, config(stream={"background": "traffic"}))
    with pytest.raises(ConfigError, match="bundle.smoothing and task disagree: got choose, and task is regression"):
        streams.check_options(replace(data, task="regression"), config())
    streams.check_options(replace(data, task="anomaly"), config(stream={"background": "normal"}))
    for task in ("anomaly", "regression"):
        with pytest.raises(ConfigError, match=f"background: got 'nonsense', and task is {task}: .*; leave it out"):
            streams.check_options(replace(data, task=task), config(smoothing=None, stream={"background": "nonsense"}))
    with pytest.raises(ConfigError, match="rows_per_s: got 50, and the samples are audio at .* Hz; leave it out"):
        streams.check_options(data, config(stream={"rows_per_s": 50.0}))


@pytest.mark.parametrize("kind", ["tensors", "text", "vector"])
@pytest.mark.parametrize("smoothing", ["auto", {"method": "majority", "windows": 3}])
def test_samples_that_come_in_no_stream_have_none_to_smooth(
    kind: Any, smoothing: Any, street: tuple[Path, Data]
) -> None:
    data = replace(street[1], kind=kind)
    words = (
        f"^bundle.smoothing: a sample of the kind {kind} cannot be part of a stream, only one of the "
        f"kinds image, audio, window"
    )
    with pytest.raises(ConfigError, match=words):
        streams.check_options(data, config(smoothing=smoothing))
    streams.check_options(data, config(smoothing=None))


@pytest.mark.parametrize(
    ("smoothing", "words"),
    [
        ({}, "give either method"),
        ({"method": "mean", "windows": 3, "choose": "auto"}, "give either method"),
        ({"choose": "auto", "windows": 3}, "windows belong to a method"),
        ({"choose": []}, "choose is empty"),
        ({"method": "median", "windows": 3}, "method"),
        ("autoo", "got 'autoo'; write auto, or a method with its options"),
        (
            {"method": "mean", "windows": 3, "detection_drop_pp": 2.0},
            "detection_drop_pp: got 2, which is only used with choose",
        ),
    ],
)
def test_options_that_are_none_are_refused(smoothing: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        config(smoothing=smoothing)


@pytest.mark.parametrize(
    ("smoothing", "task", "words"),
    [
        ({"choose": [{"method": "majority"}]}, "classification", "bundle.smoothing majority: has .*needs .'windows'"),
        ({"method": "mean", "windows": 0}, "classification", "bundle.smoothing.windows: got 0"),
        ({"method": "hysteresis", "enter": 2.0, "leave": 1.0}, "classification", "bundle.smoothing.enter: got 2.0"),
        ({"method": "majority", "windows": 3}, "regression", "majority does not fit the task regression"),
    ],
)
def test_methods_are_held_to_the_rules_of_the_manifest(smoothing: Any, task: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(smoothing=smoothing, task=task).check_consistency()


def test_auto_is_made_of_what_a_manifest_may_declare() -> None:
    for task in ("classification", "anomaly"):
        config(task=task).check_consistency()
    assert config() == config(smoothing={"choose": "auto"})
