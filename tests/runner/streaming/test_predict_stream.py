"""`edgerun predict --stream` for sound and sensors, as a process with a pipe: the same answers as for files."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner.cli import main
from tests import requirements
from tests.runner import flat
from tests.runner.streaming import recordings
from tests.runner.streaming.recordings import MEL, coded, header, sound

RUNNER = [sys.executable, "-m", "edgekit.runner"]
X = sound(6000)
MAJORITY = {"method": "majority", "windows": 3}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return {
        "sound": recordings.sound_bundle(folder / "sound.edge.zip", 400, [MEL]),
        "smoothed": recordings.sound_bundle(folder / "smoothed.edge.zip", 400, [MEL], smoothing=MAJORITY),
        "rows": recordings.sensor_bundle(folder / "rows.edge.zip", 8),
        "image": flat.write(folder / "image.edge.zip", flat.PICTURE, smoothing=MAJORITY),
    }


def predict(bundle: Path, *options: object, stdin: Any = b"", code: int = 0) -> tuple[list[dict[str, Any]], list[str]]:
    """The answers of a process, and the lines that it wrote on standard error."""
    command = [*RUNNER, "predict", str(bundle), *map(str, options), "--no-trial", "--json"]
    given = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin}
    done = subprocess.run(command, capture_output=True, timeout=120, check=False, **given)
    assert done.returncode == code, done.stderr.decode()
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("edgerun: ")]
    assert b"Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], lines


def essence(lines: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    return [(line["window"], line["scores"]) for line in lines]


def test_sound_out_of_a_pipe_gives_the_answers_of_the_file(kinds: dict[str, Path], tmp_path: Path) -> None:
    filed, _ = predict(kinds["sound"], recordings.wav(tmp_path / "a.wav", X))
    piped, errors = predict(kinds["sound"], "--stream", "s16le", "--when-slow", "wait", stdin=coded(X, "s16le"))
    assert essence(piped) == essence(filed) and len(piped) == 11
    assert [line["input"] for line in piped] == list(range(11))
    assert all(line["dropped"] == 0 and line["latency_ms"] > 0 for line in piped)
    assert errors == ["edgerun: windows of 2000 samples, one every 400; log-mel: 5 of 23 frames are new in each"]
    headed = header("s16le", 8000, 1) + coded(X, "s16le")
    with_hop, errors = predict(kinds["sound"], "--stream", "wav", "--hop", 999, "--when-slow", "wait", stdin=headed)
    assert [line["window"]["start_s"] for line in with_hop] == [number * 999 / 8000 for number in range(5)]
    assert "log-mel is computed anew for each, because the hop is not a multiple of its hop_samples" in errors[0]
    assert errors[1] == "edgerun: the stream ended; its last 4 samples do not fill a window"


def test_a_file_as_standard_input_loses_no_window(kinds: dict[str, Path], tmp_path: Path) -> None:
    """It waits by itself: nothing is lost that a slow model has not come to."""
    path = recordings.wav(tmp_path / "a.wav", sound(8000 * 20))
    filed, _ = predict(kinds["sound"], path)
    with open(path, "rb") as stdin:
        piped, _ = predict(kinds["sound"], "--stream", "wav", stdin=stdin)
    assert essence(piped) == essence(filed) and len(piped) == 396


def test_rows_out_of_a_pipe_give_the_answers_of_the_file(kinds: dict[str, Path], tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    text = "\n".join(["ax,ay,az", *(",".join(map(repr, row)) for row in values.tolist())]) + "\n"
    (tmp_path / "a.csv").write_text(text)
    filed, _ = predict(kinds["rows"], tmp_path / "a.csv")
    piped, errors = predict(kinds["rows"], "--stream", "csv", "--when-slow", "wait", stdin=text.encode())
    binary, _ = predict(kinds["rows"], "--stream", "f32le", "--when-slow", "wait", stdin=values.tobytes())
    assert essence(piped) == essence(binary) == essence(filed) and len(filed) == 5
    assert errors[0] == "edgerun: windows of 16 rows, one every 8"
    assert piped[1]["window"] == {"first_row": 9, "last_row": 24}


def test_ffmpeg_itself_is_piped_in(kinds: dict[str, Path]) -> None:
    line = (
        f"{requirements.program('ffmpeg')} -v error -f lavfi "
        "-i sine=440:sample_rate=44100:duration=1 -ac 2 -f s16le - | "
        f"{sys.executable} -m edgekit.runner predict {kinds['sound']} --stream s16le --rate 44100 --channels 2 "
        "--when-slow wait --no-trial --top 1"
    )
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 2 * 16, done.stderr
    assert lines[0].startswith("0.00–0.25 s: ") and lines[2].startswith("0.05–0.30 s: ") and "%" in lines[1]


def test_the_end_in_the_middle_is_one_line_and_exit_code_4(kinds: dict[str, Path], tmp_path: Path) -> None:
    filed, _ = predict(kinds["sound"], recordings.wav(tmp_path / "a.wav", X[:-1]))
    cut = coded(X, "s16le")[:-1]
    for policy in ("wait", "drop"):
        piped, errors = predict(kinds["sound"], "--stream", "s16le", "--when-slow", policy, stdin=cut, code=4)
        if policy == "wait":
            assert essence(piped) == essence(filed)
        assert [line for line in errors if "ended in the middle of a sample, after 0.75 s: 1 of its 2 bytes" in line]


ROWS = np.random.default_rng(5).integers(-900, 900, (50, 3)).astype("<i2")
TABLE = ("ax,ay,az\n" + "".join(",".join(map(str, row)) + "\n" for row in ROWS.tolist())).encode()
ENDS = {
    "a row of float32 is cut": ("f32le", ROWS.astype("<f4").tobytes() + b"abc", "after 50 rows: 3 of its 12 bytes"),
    "a row of int16 is cut": ("s16le", ROWS.tobytes() + b"abcde", "after 50 rows: 5 of its 6 bytes have arrived"),
    "a line loses a column": ("csv", TABLE + b"1,2\n" + TABLE[9:], "line 52: 2 cells, but the header has 3"),
    "a line gains a column": ("csv", TABLE + b"1,2,3,4\n" + TABLE[9:], "line 52: 4 cells, but the header has 3"),
    "another table begins": ("csv", TABLE + b"ax,ay,az\n" + TABLE[9:], "line 52, column 'ax': got 'ax'"),
    "the last line is cut": ("csv", TABLE + b"1,2", "line 52: 2 cells, but the header has 3"),
}


@pytest.mark.parametrize("what", ENDS)
def test_rows_that_end_or_change_in_the_middle_are_one_line_behind_all_answers(
    what: str, kinds: dict[str, Path], tmp_path: Path
) -> None:
    format, data, words = ENDS[what]
    (tmp_path / "a.csv").write_bytes(TABLE)
    filed, _ = predict(kinds["rows"], tmp_path / "a.csv")
    piped, errors = predict(kinds["rows"], "--stream", format, "--when-slow", "wait", stdin=data, code=4)
    assert essence(piped) == essence(filed) and len(filed) == 5
    assert len(errors) == 2 and words in errors[1], errors


@pytest.mark.parametrize(("rate_hz", "channels"), [(16000, 1), (8000, 2)])
def test_a_wav_header_of_another_form_in_the_middle_is_one_line_behind_all_answers(
    rate_hz: int, channels: int, kinds: dict[str, Path], tmp_path: Path
) -> None:
    filed, _ = predict(kinds["sound"], recordings.wav(tmp_path / "a.wav", X))
    data = header("s16le", 8000, 1) + coded(X, "s16le") + header("s16le", rate_hz, channels) + coded(X, "s16le")
    piped, errors = predict(kinds["sound"], "--stream", "wav", "--when-slow", "wait", stdin=data, code=4)
    assert essence(piped) == essence(filed)
    form = f"s16le, rate {rate_hz}, channels {channels} begins, but so far it was s16le, rate 8000, channels 1"
    assert len(errors) == 2 and f"the stream changes after 0.75 s: {form}" in errors[1]


def test_a_device_that_is_too_slow_says_how_many_windows_it_dropped(kinds: dict[str, Path]) -> None:
    """A minute of sound at once, faster than it can be answered: every window is answered or counted."""
    x = sound(8000 * 60)
    lines, errors = predict(kinds["sound"], "--stream", "s16le", "--hop", 20, stdin=coded(x, "s16le"))
    dropped = lines[-1]["dropped"]
    assert dropped > 0 and len(lines) + dropped == 1 + (len(x) - 2000) // 20
    assert [line["dropped"] for line in lines] == sorted(line["dropped"] for line in lines)
    assert errors[-1].startswith(
        (f"edgerun: {dropped} windows were dropped", f"edgerun: {dropped} windows dropped so far")
    )
    places = [line["window"]["start_s"] for line in lines]
    assert places == sorted(places) and all(line["latency_ms"] >= line["timing_ms"]["execute"] for line in lines)


def test_a_refused_window_is_reported_and_the_others_are_answered(kinds: dict[str, Path]) -> None:
    x = X.astype(np.float32)
    x[4500] = 2.0
    lines, errors = predict(kinds["sound"], "--stream", "f32le", "--when-slow", "wait", stdin=x.tobytes(), code=4)
    assert [("error" in line) for line in lines] == [line["window"]["end_s"] > 4500 / 8000 for line in lines]
    assert errors[-1] == "edgerun: 4 of 11 windows got no answer"
    assert "0.35–0.60 s: sample: values from" in errors[1]


def test_the_requested_number_of_windows_is_answered(kinds: dict[str, Path]) -> None:
    lines, _ = predict(
        kinds["sound"], "--stream", "s16le", "--frames", 2, "--when-slow", "wait", stdin=coded(X, "s16le")
    )
    assert len(lines) == 2


def test_smoothed_answers_stand_beside_the_windows_own(kinds: dict[str, Path], tmp_path: Path) -> None:
    x = np.concatenate([sound(3000), 0.01 * sound(3000), sound(3000)])
    path = recordings.wav(tmp_path / "a.wav", x)
    filed, _ = predict(kinds["smoothed"], path)
    options = ("--stream", "s16le", "--when-slow", "wait")
    piped, _ = predict(kinds["smoothed"], *options, stdin=coded(x, "s16le"))
    assert essence(piped) == essence(filed)
    assert not any("smoothed" in line for line in filed)
    assert all({"label", "index", "top"} == set(line["smoothed"]) for line in piped)
    command = [*RUNNER, "predict", str(kinds["smoothed"]), *options, "--no-trial", "--top", "1"]
    text = subprocess.run(command, input=coded(x, "s16le"), capture_output=True, check=True).stdout.decode()
    firsts = [line.split(": ", 1)[1] for line in text.splitlines() if "–" in line]
    for first, line in zip(firsts, piped, strict=True):
        alone = "" if line["label"] == line["smoothed"]["label"] else f" (this alone: {line['label']})"
        assert first == f"{line['smoothed']['label']}{alone}"


def test_frames_of_a_camera_are_smoothed_too(kinds: dict[str, Path]) -> None:
    frames = np.random.default_rng(2).integers(0, 256, (6, 6, 10, 3)).astype(np.uint8)
    lines, _ = predict(kinds["image"], "--stream", "rgb24", "--size", "10x6", stdin=frames.tobytes())
    labels = [line["label"] for line in lines]
    for number, line in enumerate(lines):
        last = labels[max(0, number - 2) : number + 1]
        most = max(map(last.count, last))
        assert line["smoothed"]["label"] == next(each for each in reversed(last) if last.count(each) == most)


def test_each_answer_comes_at_once_and_control_c_ends_it(kinds: dict[str, Path]) -> None:
    command = [*RUNNER, "predict", str(kinds["sound"]), "--stream", "S16_LE", "--no-trial", "--json"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, **pipes, env=flat.buffered())
    assert process.stdin and process.stdout and process.stderr
    data = coded(X, "s16le")
    for number, end in enumerate((4000, 4800, 5600)):
        process.stdin.write(data[4000 + 800 * (number - 1) if number else 0 : end])
        process.stdin.flush()
        if not select.select([process.stdout], [], [], 60)[0]:
            process.kill()
            pytest.fail("the answer was kept back")
        assert json.loads(process.stdout.readline())["input"] == number
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    lines = [line for line in process.stderr.read().decode().splitlines() if line.startswith(("edgerun", "Trace"))]
    assert lines[-1] == "edgerun: interrupted" and len(lines) == 2


@pytest.mark.parametrize(
    "arguments",
    ["", "--stream rgb24", "--size 2x2", "--stream rgb24 --size 2x2 x.png", "x.png --frames 3", "x.png --size 2x2",
     "--stream rgb --size 2x2", "--stream gray --size 2", "--stream gray --size 0x2", "--stream gray --size axb",
     "--stream gray --size 2x99999", "--stream gray --size 2x2 --frames 0", "--stream gray --size 2x2x2",
     "--stream s16le --size 2x2", "--stream csv x.wav", "--stream s16le --strict", "--stream s16le --batch 2",
     "--stream rgb24 --size 2x2 --hop 5", "--stream rgb24 --size 2x2 --when-slow drop", "x.wav --hop 400",
     "x.wav --rate 8000", "x.wav --when-slow wait", "--stream S16_BE", "--stream s16le --hop 0",
     "--stream s16le --rate x", "--stream s16le --when-slow stop", "--hop 4"],
)  # fmt: skip
def test_misused_options_are_exit_code_2(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["predict", "x.edge.zip", *arguments.split()])
    assert caught.value.code == 2
    assert "usage: edgerun predict" in capsys.readouterr().err


def test_a_terminal_is_no_pipe(kinds: dict[str, Path]) -> None:
    leader, follower = os.openpty()
    command = [*RUNNER, "predict", str(kinds["sound"]), "--stream", "s16le", "--no-trial"]
    done = subprocess.run(command, stdin=follower, capture_output=True, text=True, timeout=60, check=False)
    os.close(leader)
    os.close(follower)
    assert done.returncode == 4 and "nothing is piped in; e.g. ffmpeg -i FILE -f s16le" in done.stderr


def test_the_formats_of_the_command_are_those_of_the_streams() -> None:
    """Written down twice, for the command's help must not import numpy."""
    from edgekit.runner.commands import _stream
    from edgekit.runner.streaming import audio as sounds
    from edgekit.runner.streaming import rows

    assert set(_stream.SOUND) == set(sounds.FORMATS) and set(_stream.ROWS) == set(rows.FORMATS)
