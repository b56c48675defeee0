"""The declared steps from a file to a sample: what a manifest may list, the windows of a recording, and --strict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from edgekit.runner import input_path, inputs
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BundleError, InputError
from edgekit.runner.inputs import windows
from edgekit.runner.loader import load

from . import flat
from .conftest import manifest_for
from .flat import coded, form, riff

SILENCE = input_path.windows_step(400, 400, "silence")
SOUND = RawSpec(
    "audio", (400,), "float32", (-1.0, 1.0), 8000,
    input_path=({"step": "decode_wav"}, {"step": "mix_channels"}, {"step": "resample", "rate_hz": 8000}, SILENCE),
)  # fmt: skip
ROWS = RawSpec(
    "window", (4, 3), "float32", columns=("ax", "ay", "az"),
    input_path=({"step": "decode_csv"}, input_path.windows_step(4, 2)),
)  # fmt: skip
PICTURE = RawSpec("image", (6, 10, 3), "uint8")


def ramp(samples: int, channels: int = 1, rate_hz: int = 8000) -> bytes:
    """A WAV file of 16 bits, every sample another number."""
    values = [value % 30_000 for value in range(1, samples * channels + 1)]
    return riff(form(1, 16, channels, rate_hz), coded(values, 16))


def table(rows: int) -> str:
    return "\n".join(["ax,ay,az", *(f"{row},{row}.5,-{row}" for row in range(rows))])


@given(moments=st.integers(0, 60), length=st.integers(1, 12), stride=st.integers(1, 15), silent=st.booleans())
def test_windows_are_whole_in_order_and_lose_nothing_that_silence_could_fill(
    moments: int, length: int, stride: int, silent: bool
) -> None:
    x = np.arange(1, moments + 1, dtype=np.float32)
    step = input_path.windows_step(length, stride, "silence" if silent else "none")
    found = list(windows.window_samples(x, step, 100))
    assert len(found) == windows.window_count(moments, step)
    for number, sample in enumerate(found):
        start = number * stride
        held = x[start : start + length]
        assert sample.raw.tolist() == held.tolist() + [0.0] * (length - len(held))
        assert sample.span and (sample.span.start, sample.span.end) == (start, min(start + length, moments))
    if silent and stride <= length and moments:
        assert found[-1].span and found[-1].span.end == moments
    if not silent and moments >= length:
        assert np.array_equal(windows.stack_windows(x, step), np.stack([sample.raw for sample in found]))


def test_a_recording_gets_an_answer_for_each_window_with_its_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = flat.write(tmp_path / "x.edge.zip", SOUND)
    (tmp_path / "long.wav").write_bytes(ramp(1000))
    assert main(["predict", str(bundle), str(tmp_path / "long.wav"), "--no-trial", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["window"] for line in lines] == [
        {"start_s": 0.0, "end_s": 0.05}, {"start_s": 0.05, "end_s": 0.1}, {"start_s": 0.1, "end_s": 0.125},
    ]  # fmt: skip
    assert {line["input"] for line in lines} == {str(tmp_path / "long.wav")}
    model = load(bundle, trial=False)
    whole = np.arange(1, 1001, dtype=np.float32) / np.float32(32768)
    for line, start in zip(lines, (0, 400, 800)):
        window = np.zeros(400, np.float32)
        window[: len(whole[start : start + 400])] = whole[start : start + 400]
        assert line["scores"] == model.predict(window).scores.tolist()
    assert main(["predict", str(bundle), str(tmp_path / "long.wav"), "--no-trial"]) == 0
    assert "long.wav, 0.05–0.10 s: " in capsys.readouterr().out


def test_from_python_a_file_is_read_as_on_the_command_line_or_strictly(tmp_path: Path) -> None:
    model = load(flat.write(tmp_path / "x.edge.zip", ROWS), trial=False)
    (tmp_path / "a.csv").write_text(table(9))
    answers = list(model.predict_file(tmp_path / "a.csv"))
    assert [str(answer.span) for answer in answers] == ["rows 1–4", "rows 3–6", "rows 5–8"]
    assert answers[1].span and answers[1].span.to_dict() == {"first_row": 3, "last_row": 6}
    with pytest.raises(InputError, match="more than 4 rows, but the bundle takes 4"):
        list(model.predict_file(tmp_path / "a.csv", strict=True))
    (tmp_path / "a.csv").write_text(table(4))
    assert len(list(model.predict_file(tmp_path / "a.csv", strict=True))) == 1
    (tmp_path / "a.csv").write_text(table(3))
    with pytest.raises(InputError, match="3 rows, but the bundle takes 4; record for longer"):
        list(model.predict_file(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (ramp(400, rate_hz=16_000), "16000 samples a second, but the bundle takes 8000"),
        (ramp(400, channels=2), "2 channels, but the bundle takes one"),
        (ramp(401), "401 samples, but the bundle takes 400"),
        (ramp(399), "399 samples, but the bundle takes 400"),
    ],
)
def test_strictly_a_sound_must_be_the_sample_already(content: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(content)
    assert inputs.read_first_sample(str(path), SOUND).shape == (400,)
    with pytest.raises(InputError, match=f"{words}.*ffmpeg"):
        inputs.read_first_sample(str(path), SOUND, strict=True)
    bundle = flat.write(tmp_path / "x.edge.zip", SOUND)
    flat.predict(bundle, path)
    flat.predict(bundle, path, "--strict", code=4)


def test_strictly_a_picture_must_be_the_sample_already(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (10, 6)).save(tmp_path / "fits.png")
    Image.new("RGB", (20, 12)).save(tmp_path / "large.png")
    Image.new("RGB", (6, 10)).save(tmp_path / "turned.png", exif=exif)
    for name, words in (("large", "20×12 pixels, but the bundle takes 10×6"), ("turned", "EXIF tag says")):
        assert inputs.read_first_sample(str(tmp_path / f"{name}.png"), PICTURE).shape == PICTURE.shape
        with pytest.raises(InputError, match=words):
            inputs.read_first_sample(str(tmp_path / f"{name}.png"), PICTURE, strict=True)
    assert inputs.read_first_sample(str(tmp_path / "fits.png"), PICTURE, strict=True).shape == PICTURE.shape


def test_a_sound_of_any_rate_is_read_at_the_rate_of_the_bundle(tmp_path: Path) -> None:
    raw = RawSpec("audio", (50,), "float32", (-1.0, 1.0), 500)
    (tmp_path / "a.wav").write_bytes(ramp(50, rate_hz=500))
    assert inputs.read_first_sample(str(tmp_path / "a.wav"), raw).shape == (50,)


def test_an_odd_rate_takes_no_more_memory_than_another(tmp_path: Path) -> None:
    """Ten samples of 511,999 Hz: the filter of such a ratio has a million coefficients, and more."""
    code = (
        "import resource, numpy; from edgekit.runner.inputs.resampling import resample; "
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; "
        "resample(numpy.ones(10, numpy.float32), 511_999, 8000); "
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200


def test_tables_are_read_in_parts_and_are_the_same(tmp_path: Path) -> None:
    rows = 20_000
    (tmp_path / "a.csv").write_text(table(rows))
    found = list(inputs.samples(str(tmp_path / "a.csv"), ROWS))
    assert len(found) == 1 + (rows - 4) // 2
    assert found[-1].raw[:, 0].tolist() == [19996.0, 19997.0, 19998.0, 19999.0]
    assert found[4095].raw[:, 0].tolist() == [8190.0, 8191.0, 8192.0, 8193.0]  # over the border of two parts


def test_a_window_with_nan_is_reported_with_its_place(tmp_path: Path) -> None:
    values = np.zeros(1000, "<f4")
    values[700] = np.nan
    (tmp_path / "a.wav").write_bytes(riff(form(3, 32), values.tobytes()))
    model = load(flat.write(tmp_path / "x.edge.zip", SOUND), trial=False)
    answers = model.predict_file(tmp_path / "a.wav")
    assert str(next(answers).span) == "0.00–0.05 s"
    with pytest.raises(InputError, match="a.wav, 0.05–0.10 s: sample: holds NaN"):
        next(answers)


def test_what_no_step_decodes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(ramp(400))
    bare = RawSpec("audio", (400,), "float32", (-1.0, 1.0), 8000, input_path=())
    assert inputs.suffixes(bare) == [".npy"] and ".wav" in inputs.suffixes(SOUND)
    assert "not a sound; give it a .npy file" in flat.refusal(tmp_path / "a.wav", bare)


def test_channels_are_mixed_evenly(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(riff(form(1, 16, 3), coded([9000, 0, -3000] * 400, 16)))
    assert inputs.read_first_sample(str(tmp_path / "a.wav"), SOUND).tolist() == [float(np.float32(2000 / 32768))] * 400


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (ramp(0), "it holds no sound"),
        (riff(form(1, 16, 1, 100), coded([1] * 90, 16)), "100 samples a second, which cannot be resampled to 8000"),
        (riff(form(1, 16, 2), coded([1] * 801, 16)), "not a whole number of samples"),
    ],
)
def test_what_no_step_puts_right_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    assert words in flat.refusal(tmp_path / "a.wav", SOUND)


def test_an_hour_of_sound_is_refused_with_the_line_that_parts_it(tmp_path: Path) -> None:
    with open(tmp_path / "hour.wav", "wb") as stream:
        stream.write(riff(form(1, 16), b"", length=3600 * 8000 * 4))
        stream.truncate(44 + 3600 * 8000 * 4 + 64)  # a file with a hole: nothing of it is written or read
    message = flat.refusal(tmp_path / "hour.wav", SOUND)
    assert "too many to read at once; run: ffmpeg -i" in message and "-f segment" in message


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([{"step": "decode_mp3"}], "known steps"),
        ([{"step": ["decode_wav"]}], "known steps"),
        (["decode_wav"], "known steps"),
        ([{"step": "decode_wav", "rate_hz": 3}], "needs \\[\\]"),
        ([{"step": "resample"}], "needs \\['rate_hz'\\]"),
        ([{"step": "decode_wav"}, {"step": "resample", "rate_hz": True}], "a whole number above 0"),
        ([{"step": "decode_wav"}, {"step": "resample", "rate_hz": 16_000}], "the sample has 8000 Hz"),
        ([{"step": "resample", "rate_hz": 8000}], "without decode_wav; begin with that step"),
        ([{"step": "mix_channels"}, {"step": "decode_wav"}], "decode_wav: not allowed here"),
        ([{"step": "decode_wav"}, {"step": "decode_wav"}], "decode_wav: not allowed here"),
        ([{"step": "decode_csv"}], "decode_csv: not allowed here"),
        ([{"step": "decode_wav"}, input_path.windows_step(399, 1, "silence")], "the sample has 400"),
        ([{"step": "decode_wav"}, input_path.windows_step(400, 1, "noise")], "use one of"),
        ([{"step": "read_array", "dtypes": ["object"], "shape": [400]}], "known: uint8"),
        ([{"step": "read_array", "dtypes": ["float64"], "shape": [20, 20]}], "the sample has \\[400\\]"),
        ([{"step": "read_array", "dtypes": [], "shape": [400]}], "use a list"),
        ("decode_wav", "must be a list of steps"),
    ],
)
def test_a_manifest_with_an_impossible_path_is_refused(steps: Any, words: str, models: Any, tmp_path: Path) -> None:
    fields = json.loads(manifest_json.to_json(manifest_for(models["onnx"])))
    fields["raw"] = {
        "kind": "audio", "shape": [400], "dtype": "float32", "range": None, "sample_rate_hz": 8000, "input_path": steps,
    }  # fmt: skip
    with pytest.raises(BundleError, match=f"input_path.*{words}"):
        manifest_json.parse(json.dumps(fields).encode())


def test_a_path_comes_back_as_it_was_written(models: Any) -> None:
    for raw in (
        PICTURE,
        RawSpec("image", (8, 8, 1), "uint8", input_path=tuple(input_path.picture_steps((8, 8, 1), "crop"))),
    ):
        written = manifest_for(models["onnx"], raw=RawSpec("image", (8, 8, 1), "uint8", input_path=raw.input_path))
        if raw is PICTURE:
            with pytest.raises(BundleError, match="channels; it must have 1"):
                manifest_json.parse(manifest_json.to_json(written))
        else:
            assert manifest_json.parse(manifest_json.to_json(written)).raw == raw
