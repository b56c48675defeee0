"""Long recordings with label tracks: which windows have which label, and that no moment stands in two splits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data, load, parse
from edgekit.data.sources import wav_track
from edgekit.data.sources.wav_track import LabelledStretch
from tests.runner.flat import form, riff

RATE_HZ = 8000
WINDOW = 400

Part = tuple[float, str]


def recording(path: Path, parts: Sequence[Part], rate_hz: int = RATE_HZ) -> Path:
    """A .wav of parts (seconds, label), every sample another number, and its track; parts without a label are gaps."""
    total = sum(round(seconds * rate_hz) for seconds, _ in parts)
    values = np.random.default_rng(total).integers(-20_000, 20_000, total).astype("<i2")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(riff(form(1, 16, 1, rate_hz), values.tobytes()))
    lines, at = [], 0.0
    for seconds, label in parts:
        if label:
            lines.append(f"{at:.6f}\t{at + seconds:.6f}\t{label}\n")
        at += seconds
    path.with_suffix(".txt").write_text("".join(lines))
    return path


def alternating(count: int = 60) -> list[Part]:
    """Stretches of two windows, three labels in turn, a gap of a window between them."""
    return [part for number in range(count) for part in ((0.1, ("bark", "bell", "rain")[number % 3]), (0.05, ""))]


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    path = recording(tmp_path / "street.wav", alternating())
    return {"path": str(path), "rate_hz": RATE_HZ, "seconds": 0.05, "calibration_samples": 12}


def read(path: Path, **more: object) -> Data:
    options = {"source": "wav_track", "path": str(path), "rate_hz": RATE_HZ, "seconds": 0.05, "calibration_samples": 6}
    return load(parse({**options, **more}))


def splits(data: Data) -> dict[str, np.ndarray]:
    return {name: getattr(data, name).x for name in ("train", "calibration", "validation", "test")}


def moments(path: Path, windows: np.ndarray) -> set[int]:
    """The samples of the recording that stand in some windows."""
    whole = np.frombuffer(path.read_bytes()[-2 * recorded(path) :], "<i2").astype(np.float32) / 32768
    found: set[int] = set()
    for window in windows:
        [start] = [at for at in np.flatnonzero(whole == window[0]) if np.array_equal(whole[at : at + WINDOW], window)]
        found.update(range(start, start + WINDOW))
    return found


def recorded(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[path.read_bytes().index(b"data") + 4 :][:4], "little") // 2


@pytest.mark.parametrize("stride_s", [0.05, 0.025, 0.01])
@pytest.mark.parametrize("background", [None, "street"])
def test_no_moment_stands_in_two_splits(stride_s: float, background: str | None, tmp_path: Path) -> None:
    parts = [part for each in range(24) for part in ((0.23, "ab"[each % 2]), (0.17, ""))]
    path = recording(tmp_path / "street.wav", parts)
    data = read(path, stride_s=stride_s, background=background)
    assert data.classes == (("a", "b", "street") if background else ("a", "b"))
    found = [moments(path, x) for x in splits(data).values()]
    assert sum(map(len, found)) == len(set().union(*found))


def test_every_window_has_the_label_that_covers_most_of_it(tmp_path: Path) -> None:
    path = recording(tmp_path / "street.wav", alternating())
    data = read(path)
    whole = np.frombuffer(path.read_bytes()[-2 * recorded(path) :], "<i2").astype(np.float32) / 32768
    for name in ("train", "validation", "test"):
        split = getattr(data, name)
        for x, y in zip(split.x, split.y, strict=True):
            [start] = [at for at in range(0, len(whole), WINDOW) if np.array_equal(whole[at : at + WINDOW], x)]
            stretch, place = divmod(start // WINDOW, 3)
            assert place < 2 and data.classes[y] == ("bark", "bell", "rain")[stretch % 3]
    assert data.notes[0] == "120 windows have a label; left out: 60 without a label"


@pytest.mark.parametrize(
    ("stretches", "expected"),
    [
        ([(0.0, 1.0, "a")], {0: "a", 1: "a"}),
        ([(0.2, 1.0, "a")], {0: "a", 1: "a"}),
        ([(0.26, 1.0, "a")], {1: "a"}),
        ([(0.0, 0.5, "a"), (0.5, 1.0, "b")], {0: "a", 1: "b"}),
        ([(0.0, 0.6, "a"), (0.6, 1.0, "b")], {0: "a"}),  # the second touches both
        ([(0.0, 1.0, "a"), (0.5, 1.0, "b")], {0: "a"}),  # the second is both, and they overlap
        ([(0.0, 1.0, "a"), (0.6, 0.8, "b")], {0: "a", 1: "a"}),
    ],
)
def test_labels_of_two_windows_of_half_a_second(
    stretches: list[tuple[float, float, str]], expected: dict[int, str]
) -> None:
    found = wav_track.label_windows([LabelledStretch(*each) for each in stretches], 2, 50, 50, 100, 0.5, None)
    assert {each.number: each.label for each in found.windows} == expected
    assert len(found.windows) + sum(found.left_out.values()) == 2


def test_a_window_that_shares_moments_with_another_stretch_is_left_out() -> None:
    stretches = [LabelledStretch(0.0, 1.0, "a"), LabelledStretch(2.0, 3.0, "b")]
    found = wav_track.label_windows(stretches, 11, 100, 25, 100, 0.5, "none")
    taken = [(each.number * 0.25, each.label) for each in found.windows]
    assert taken == [(0.0, "a"), (0.25, "a"), (0.5, "a"), (1.5, "b"), (1.75, "b"), (2.0, "b"), (2.25, "b"), (2.5, "b")]
    assert [each.label for each in wav_track.label_windows(stretches, 3, 100, 100, 100, 0.5, "none").windows] == [
        "a",
        "none",
        "b",
    ]


def test_the_background_of_an_anomaly_detection_is_normal() -> None:
    values = {"source": "wav_track", "path": "mill.wav", "rate_hz": RATE_HZ, "seconds": 0.05}
    with pytest.raises(ConfigError, match="background: got 'hum', but every class except normal or good is an anomaly"):
        parse({**values, "background": "hum"}, "anomaly")
    parse({**values, "background": "normal"}, "anomaly")
    parse({**values, "background": "hum"}, "classification")


def test_a_folder_of_recordings_is_one_pool(tmp_path: Path) -> None:
    for place in range(2):
        recording(tmp_path / "days" / f"{place}.wav", alternating(30 + place))
    data = read(tmp_path / "days")
    assert sum(map(len, splits(data).values())) == 122


TRACKS = {
    "no tabs": ("0.0 0.1 bark\n", "street.txt, line 1: 1 cells; write start, end and label, separated by tabs"),
    "a comma": ("0,0\t0,1\tbark\n", "street.txt, line 1: got '0,0' and '0,1'; start and end are seconds, such as 12.5"),
    "backwards": ("0.2\t0.1\tbark\n", "street.txt, line 1: from 0.2 to 0.1 s; a stretch ends after it starts"),
    "no label": ("0.0\t0.1\t\n", "street.txt, line 1: the label is empty"),
    "another recording": (
        "0.0\t99.0\tbark\n",
        "'bark' reaches to 99 s, but the recording ends at 9.00 s; is it the track",
    ),
    "nothing": ("\n", "street.txt: has no stretch"),
    "marks alone": ("0.1\t0.1\tbark\n", "street.txt: has no stretch"),
}


@pytest.mark.parametrize("fault", TRACKS)
def test_a_track_that_cannot_be_is_named(fault: str, tmp_path: Path) -> None:
    path = recording(tmp_path / "street.wav", alternating())
    text, message = TRACKS[fault]
    path.with_suffix(".txt").write_text(text)
    with pytest.raises(DataError) as caught:
        read(path)
    assert message in str(caught.value)


def test_marks_without_a_length_and_lines_of_frequencies_are_passed_over(tmp_path: Path) -> None:
    path = recording(tmp_path / "street.wav", alternating())
    before = read(path)
    track = path.with_suffix(".txt")
    track.write_text(track.read_text() + "1.0\t1.0\there\n\\\t200.0\t4000.0\n")
    data = read(path)
    assert data.digest == before.digest and "1 marks without a length" in data.notes[0]


def test_a_recording_without_a_track_is_named(tmp_path: Path) -> None:
    path = recording(tmp_path / "street.wav", alternating())
    path.with_suffix(".txt").unlink()
    with pytest.raises(DataError, match="street.wav: its label track is missing; export it to street.txt beside it"):
        read(path)


def test_too_few_stretches_are_reported(tmp_path: Path) -> None:
    path = recording(tmp_path / "street.wav", [(1.0, "a"), (1.0, "b"), (1.0, "a")])
    with pytest.raises(DataError, match="too few recordings to divide"):
        read(path)


def test_a_window_is_a_whole_number_of_samples(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stride_s: 0.0001 s at 8000 Hz are not a whole number of samples"):
        read(tmp_path, stride_s=0.0001)
