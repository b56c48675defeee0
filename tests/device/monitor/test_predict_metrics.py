"""`edgerun predict --metrics`: files, batches and streams, as processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest

from edgekit.runner.cli import main
from tests.device.monitor.scraped import names, value
from tests.runner import flat
from tests.runner.batches import onnx_with
from tests.runner.conftest import WriteBundle, samples
from tests.runner.streaming import recordings

RUNNER = [sys.executable, "-m", "edgekit.runner", "predict"]
REQUESTS, PARTS = "edgekit_request_duration_seconds_count", "edgekit_part_duration_seconds_count"
Captured = pytest.CaptureFixture[str]


def test_files_leave_their_figures_behind(tmp_path: Path, capsys: Captured) -> None:
    bundle, file = flat.write(tmp_path / "flat.edge.zip", flat.PICTURE), tmp_path / "model.prom"
    folder = tmp_path / "inputs"
    folder.mkdir()
    for number, sample in enumerate(flat.examples(flat.PICTURE, 5)):
        np.save(folder / f"{number}.npy", sample)
    np.save(folder / "wide.npy", np.zeros((9, 8, 1), np.uint8))
    assert main(["predict", str(bundle), str(folder), "--no-trial", "--metrics", str(file)]) == 4
    page = file.read_bytes()
    assert value(page, REQUESTS, model="tiny", version="1.2.0") == 5
    assert value(page, "edgekit_refused_total", reason="invalid") == 1
    assert "edgekit_batch_size_count" not in names(page)
    assert "metrics" not in capsys.readouterr().err


def test_a_batch_shows_its_sizes(tmp_path: Path, write_bundle: WriteBundle, capsys: Captured) -> None:
    bundle, folder = write_bundle(onnx_with()), tmp_path / "inputs"
    folder.mkdir()
    for number, image in enumerate(samples(11)):
        np.save(folder / f"{number:02}.npy", image)
    file = tmp_path / "model.prom"
    assert main(["predict", str(bundle), str(folder), "--no-trial", "--batch", "4", "--metrics", str(file)]) == 0
    page = file.read_bytes()
    assert value(page, REQUESTS) == value(page, "edgekit_batch_size_sum") == 11
    at_most = [value(page, "edgekit_batch_size_bucket", le=size) for size in ("1", "2", "4", "+Inf")]
    assert at_most == [1, 2, 4, 4]


def test_a_stream_is_scraped_while_it_runs(tmp_path: Path) -> None:
    bundle = recordings.sound_bundle(tmp_path / "sound.edge.zip", 400)
    options = ["--stream", "s16le", "--when-slow", "wait", "--no-trial", "--json", "--metrics", "127.0.0.1:0"]
    sound = recordings.coded(recordings.sound(6000), "s16le")
    with subprocess.Popen(
        [*RUNNER, str(bundle), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=flat.buffered(),
    ) as process:
        assert process.stdin and process.stdout and process.stderr
        address = re.search(rb"^edgerun: metrics at (http://127\.0\.0\.1:\d+/metrics)$", process.stderr.readline())
        assert address
        process.stdin.write(sound[:8000])
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(6)]
        with urlopen(address[1].decode()) as answer:
            page = answer.read()
        rest, errors = process.communicate(sound[8000:], timeout=60)
    assert process.returncode == 0 and b"Traceback" not in errors
    assert len(answers) + len(rest.splitlines()) == 11
    assert value(page, REQUESTS) == value(page, PARTS, part="queue") == value(page, PARTS, part="execute") == 6
    assert value(page, "edgekit_dropped_total") == 0


def test_a_second_process_on_the_same_port_is_an_error(tmp_path: Path) -> None:
    bundle = recordings.sound_bundle(tmp_path / "sound.edge.zip", 400)
    command = [*RUNNER, str(bundle), "--stream", "s16le", "--no-trial", "--metrics"]
    with subprocess.Popen([*command, "127.0.0.1:0"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin and process.stderr
        found = re.search(rb"127\.0\.0\.1:\d+", process.stderr.readline())
        assert found
        second = subprocess.run([*command, found[0].decode()], input=b"", capture_output=True, check=False)
        process.kill()
    assert second.returncode == 4
    [line] = second.stderr.decode().splitlines()
    assert re.search(r"^edgerun: metrics: cannot listen on 127\.0\.0\.1:\d+: Address already in use; use", line)


def test_frames_of_a_camera_are_counted(tmp_path: Path) -> None:
    bundle, file = flat.write(tmp_path / "image.edge.zip", flat.PICTURE), tmp_path / "model.prom"
    frames = bytes(3 * 6 * 10 * 3)
    command = [*RUNNER, str(bundle), "--stream", "rgb24", "--size", "10x6", "--no-trial", "--metrics", str(file)]
    done = subprocess.run(command, input=frames, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert value(file.read_bytes(), REQUESTS) == 3


@pytest.mark.parametrize("where", ["model.txt", "0.0.0.0:9100", "none/model.prom"])
def test_a_place_that_will_not_do_ends_it_before_anything_is_read(
    tmp_path: Path, where: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["predict", "no bundle", "no file", "--metrics", where]) == 4
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("edgerun: metrics: ") and captured.err.count("\n") == 1
