"""What a stream answers for a window is, bit for bit, what a file of the same samples gets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.errors import InputError
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from tests.runner import flat
from tests.runner.streaming import recordings
from tests.runner.streaming.recordings import LENGTH, MEL, chunks, of_file, of_stream

NORMALIZED = [{"step": "scale", "factor": 0.5}, MEL, {"step": "normalize", "mean": [-3.0], "std": [2.0]}]


def opened(folder: Path, hop: int, steps: Any = (), fill: str = "none", **raw: Any) -> Model:
    return load(recordings.sound_bundle(folder / f"hop{hop}.edge.zip", hop, steps, fill, **raw), trial=False)


@pytest.mark.parametrize("size", [1, 7, 1000, 65536, 0])
@pytest.mark.parametrize("hop", [400, 2000, 333])
@pytest.mark.parametrize("fill", ["none", "silence"])
def test_any_parts_give_the_answers_of_the_file(hop: int, size: int, fill: str, tmp_path: Path) -> None:
    model = opened(tmp_path, hop, [MEL], fill)
    x = recordings.sound(5123)
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x))
    assert len(expected) >= 2
    assert of_stream(model, chunks(recordings.coded(x, "s16le"), size), "s16le", hop=hop) == expected
    assert of_stream(model, chunks(recordings.coded(x, "s16le"), size), "S16_LE") == expected  # the declared stride


@pytest.mark.parametrize("samples", [2000, 2001, 2399, 2400, 4000, 20_011, 40_000])
@pytest.mark.parametrize("fill", ["none", "silence"])
def test_sounds_of_any_length(samples: int, fill: str, tmp_path: Path) -> None:
    model = opened(tmp_path, 400, [MEL], fill)
    x = recordings.sound(samples, seed=samples)
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x))
    assert of_stream(model, chunks(recordings.coded(x, "s16le"), 999), "s16le") == expected


def test_silence_fills_up_a_sound_shorter_than_a_window(tmp_path: Path) -> None:
    model = opened(tmp_path, 400, [MEL], "silence")
    x = recordings.sound(700)
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x))
    assert len(expected) == 1
    assert of_stream(model, chunks(recordings.coded(x, "s16le"), 100), "s16le") == expected


RATES = [(8000, 1), (8000, 2), (16000, 1), (11025, 2), (44100, 1), (4000, 3)]


@pytest.mark.parametrize(
    ("name", "rate_hz", "channels"),
    [
        *(("s16le", *rate) for rate in RATES),
        *((name, *rate) for name in ("u8", "s24le", "s32le", "f32le") for rate in ((8000, 1), (11025, 2))),
    ],
)
def test_every_coding_rate_and_number_of_channels(name: str, rate_hz: int, channels: int, tmp_path: Path) -> None:
    """Mixed and resampled as the file is, whether a header says so or the one who asks."""
    model = opened(tmp_path, 500, [MEL])
    x = recordings.sound(rate_hz * 3 // 4 + 17, channels)
    data = recordings.coded(x, name)
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x, name, rate_hz))
    assert len(expected) == 9
    form = {"rate_hz": rate_hz, "channels": channels}
    assert of_stream(model, chunks(data, 4097), name, **form) == expected
    headed = recordings.header(name, rate_hz, channels) + data
    assert of_stream(model, chunks(headed, 13 if name == "s16le" and rate_hz < 44_100 else 211), "wav") == expected
    assert of_stream(model, io.BytesIO(headed), name, **form) == expected


@pytest.mark.parametrize("steps", [[], [MEL], NORMALIZED, [{"step": "scale", "factor": 2.0}]])
@pytest.mark.parametrize("hop", [80, 160, 400, 2000, 2400, 100, 999])
def test_with_frames_reused_or_not(hop: int, steps: list[dict[str, Any]], tmp_path: Path) -> None:
    model = opened(tmp_path, hop, steps)
    x = recordings.sound(12_000)
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x))
    assert of_stream(model, chunks(recordings.coded(x, "s16le"), 320), "s16le") == expected


@pytest.mark.parametrize(("hop", "new"), [(80, 1), (400, 5), (1840, 23), (2000, 23), (100, 23), (4000, 23)])
def test_it_says_how_many_frames_each_window_computes(hop: int, new: int, tmp_path: Path) -> None:
    stream = opened(tmp_path, hop, NORMALIZED).stream(iter(()))
    assert (stream.frames, stream.new_frames) == (23, new)
    assert opened(tmp_path, hop).stream(iter(())).frames is None


def test_a_deviation_for_each_sample_shares_no_frames(tmp_path: Path) -> None:
    """`normalize` before `log_mel` with a mean of its own for each place in the window."""
    steps = [{"step": "normalize", "mean": np.linspace(-1, 1, LENGTH).tolist(), "std": [1.0]}, MEL]
    model = opened(tmp_path, 400, steps)
    x = recordings.sound(6000)
    assert model.stream(iter(())).frames is None
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x))
    assert of_stream(model, chunks(recordings.coded(x, "s16le"), 0), "s16le") == expected


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32", "uint8"])
@pytest.mark.parametrize("channels", [1, 2])
def test_arrays_are_what_their_bytes_would_be(dtype: str, channels: int, tmp_path: Path) -> None:
    model = opened(tmp_path, 400, [MEL])
    name = {"int16": "s16le", "int32": "s32le", "float32": "f32le", "uint8": "u8"}[dtype]
    x = recordings.sound(6000, channels)
    values = np.frombuffer(recordings.coded(x, name), np.dtype(dtype).newbyteorder("<")).astype(dtype)
    parts = np.split(values.reshape(x.shape) if channels > 1 else values, [10, 500, 501, 4000])
    expected = of_file(model, recordings.wav(tmp_path / "a.wav", x, name))
    assert of_stream(model, parts) == expected
    assert of_stream(model, (part for part in parts)) == expected


def test_without_a_declared_stride_windows_overlap_by_half(tmp_path: Path) -> None:
    model = load(flat.write(tmp_path / "a.edge.zip", flat.SOUND), trial=False)
    x = recordings.sound(1000)
    found = list(model.stream(chunks(recordings.coded(x, "s16le"), 64), "s16le"))
    assert [(each.span.start, each.span.end) for each in found] == [(0, 400), (200, 600), (400, 800), (600, 1000)]
    for each in found:
        raw = (np.frombuffer(recordings.coded(x, "s16le"), "<i2") / np.float32(32768)).astype(np.float32)
        alone = model.predict(raw[each.span.start : each.span.end])
        assert each.prediction.scores.tobytes() == alone.scores.tobytes()  # type: ignore[union-attr]


def test_an_answer_has_its_place_its_times_and_its_kind(tmp_path: Path) -> None:
    model = opened(tmp_path, 400, [MEL])
    first, *_ = model.stream(io.BytesIO(recordings.coded(recordings.sound(4000), "s16le")), "s16le", top_k=2)
    assert first.span.to_dict() == {"start_s": 0.0, "end_s": 0.25}
    assert first.prediction is not None and first.smoothed is None and first.error is None and first.dropped == 0
    assert len(first.prediction.top) == 2  # type: ignore[union-attr]
    timing_ms = first.prediction.timing_ms
    assert set(timing_ms) == {"wait", "preprocess", "execute", "postprocess"}
    assert first.latency_ms >= sum(timing_ms.values()) - 1e-6
    facts = first.to_dict()
    assert facts["window"] == first.span.to_dict() and facts["label"] == first.prediction.label  # type: ignore[union-attr]
    assert {"latency_ms", "dropped"} <= set(facts) and "smoothed" not in facts and "error" not in facts


def test_latency_counts_from_the_arrival_of_the_last_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two parts a second apart: the wait between them is no latency of the window that the second completes."""
    now_ms = 0.0
    from edgekit.runner.streaming import source, stream

    for module in (stream, source):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: round(now_ms * 1e6))
    model = opened(tmp_path, 2000)
    data = recordings.coded(recordings.sound(2000), "s16le")

    def slow() -> Any:
        nonlocal now_ms
        yield data[:1000]
        now_ms += 1000
        yield data[1000:]

    predict = model.execute

    def execute(x: np.ndarray) -> np.ndarray:
        nonlocal now_ms
        now_ms += 30
        return predict(x)

    monkeypatch.setattr(model, "execute", execute)
    (answer,) = model.stream(slow(), "s16le")
    assert answer.latency_ms == 30 and answer.prediction.timing_ms["execute"] == 30  # type: ignore[union-attr]


def test_a_window_that_cannot_be_answered_keeps_no_other_from_its_answer(tmp_path: Path) -> None:
    model = opened(tmp_path, 400, [MEL])
    x = recordings.sound(8000).astype(np.float32)
    whole = list(model.stream([x]))
    x[3000] = np.nan
    found = list(model.stream([x]))
    assert [each.span for each in found] == [each.span for each in whole]
    for each, other in zip(found, whole, strict=True):
        if each.span.start <= 3000 < each.span.end:
            assert each.prediction is None and "NaN" in str(each.error) and "error" in each.to_dict()
        else:
            assert each.prediction.scores.tobytes() == other.prediction.scores.tobytes()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hop": 0}, "hop: got 0"),
        ({"hop": 1.5}, "hop: got 1.5"),
        ({"top_k": 0}, "top_k: got 0"),
        ({"when_slow": "stop"}, "when_slow: got 'stop'; use one of drop, wait"),
        ({"format": "mp3"}, "format: got 'mp3'; use one of u8, s16le"),
        ({"rate_hz": 0}, "rate_hz: got 0"),
        ({"channels": True}, "channels: got True"),
        ({"rate_hz": 10**6}, "cannot be resampled to 8000"),
    ],
)
def test_impossible_options_are_refused_at_once(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        opened(tmp_path, 400).stream(iter(()), **options)


@pytest.mark.parametrize("source", [b"bytes", "name.wav", 3, None, np.zeros(4, np.float32)])
def test_an_object_that_is_no_source_is_refused_at_once(source: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="source: got .*; use an open binary file, or an iterable"):
        opened(tmp_path, 400).stream(source, "s16le")


@pytest.mark.parametrize(
    ("part", "words"),
    [("text", "it gave str"), (np.zeros((2, 2, 2), np.float32), "float32\\[2, 2, 2\\]"), (np.zeros(3), "float64")],
)
def test_an_invalid_part_of_the_stream_is_an_error(part: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=words):
        list(opened(tmp_path, 400).stream([part], "s16le"))


def test_bytes_without_a_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no WAV header; name its format: u8, s16le"):
        list(opened(tmp_path, 400).stream([bytes(100)]))


@pytest.mark.parametrize("raw", [flat.PICTURE, flat.VECTOR, flat.PIXELS])
def test_a_bundle_that_takes_no_windows_is_refused(raw: RawSpec, tmp_path: Path) -> None:
    model = load(flat.write(tmp_path / "a.edge.zip", raw), trial=False)
    with pytest.raises(InputError, match="neither sound nor rows"):
        model.stream(iter(()), "s16le")


def test_a_stream_can_be_ended_before_its_source(tmp_path: Path) -> None:
    stream = opened(tmp_path, 400, [MEL]).stream(
        chunks(recordings.coded(recordings.sound(9000), "s16le"), 100), "s16le"
    )
    assert next(stream).span.start == 0
    stream.close()
    assert list(stream) == []


def test_ends_are_reported_and_no_complete_window_is_lost(tmp_path: Path) -> None:
    model = opened(tmp_path, 400, [MEL])
    notes: list[str] = []
    found = list(model.stream([np.zeros(2650, np.int16)], on_note=notes.append))
    assert len(found) == 2 and notes == ["the stream ended; its last 250 samples do not fill a window"]
    with pytest.raises(InputError, match="the stream ended after 1999 samples; a window has 2000"):
        list(model.stream([np.zeros(1999, np.int16)]))
    with pytest.raises(InputError, match="nothing arrived"):
        list(model.stream(io.BytesIO(), "s16le"))
