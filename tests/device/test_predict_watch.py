"""`edgerun predict --watch` says on standard error whether the model is still right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.device.monitor.watched import with_reference
from tests.runner import flat


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of pictures with a reference."""
    path = flat.write(tmp_path_factory.mktemp("watched") / "flat.edge.zip", flat.PICTURE)
    return with_reference(path, flat.examples(flat.PICTURE, 400))


def model_lines(stderr: str) -> list[str]:
    """Return the lines about the model."""
    return [line for line in stderr.splitlines() if line.startswith("edgerun: still right? ")]


def arrays(folder: Path, samples: np.ndarray) -> Path:
    """A folder of samples."""
    folder.mkdir()
    for number, sample in enumerate(samples):
        np.save(folder / f"{number:04}.npy", sample)
    return folder


def test_a_change_is_reported_once_and_again_at_the_end(
    watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples = flat.examples(flat.PICTURE, 320)
    samples[128:] //= 3
    flat.predict(watched, arrays(tmp_path / "in", samples), "--watch")
    stdout, stderr = capsys.readouterr()
    lines = model_lines(stderr)
    assert lines[0].startswith("edgerun: still right? healthy: ")
    assert lines[-1].startswith("edgerun: still right? warning: ") and "than in validation" in lines[-1]
    assert 3 <= len(lines) <= 6
    assert "still right" not in stdout and stdout.count("in/0") == 320


def test_few_samples_are_too_early_to_say(watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat.predict(watched, arrays(tmp_path / "in", flat.examples(flat.PICTURE, 5)), "--watch")
    assert model_lines(capsys.readouterr().err) == [
        "edgerun: still right? early: 5 samples are too few for a verdict; 64 are needed"
    ]


def test_a_batch_is_watched_as_well(watched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat.predict(watched, arrays(tmp_path / "in", flat.examples(flat.PICTURE, 70)), "--watch", "--batch", "1")
    assert model_lines(capsys.readouterr().err)[-1].startswith("edgerun: still right? healthy: 70 samples")


def test_a_stream_is_watched_as_well(tmp_path: Path) -> None:
    path = with_reference(flat.write(tmp_path / "f.edge.zip", flat.PICTURE), flat.examples(flat.PICTURE, 400))
    options = ["--no-trial", "--stream", "rgb24", "--size", "10x6", "--watch"]
    command = [sys.executable, "-m", "edgekit.runner", "predict", str(path), *options]
    frames = flat.examples(flat.PICTURE, 70).tobytes()
    done = subprocess.run(command, input=frames, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert model_lines(done.stderr.decode())[-1].startswith("edgerun: still right? healthy: 70 samples")


def test_a_bundle_without_a_reference_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = flat.write(tmp_path / "old.edge.zip", flat.PICTURE)
    sample = arrays(tmp_path / "in", flat.examples(flat.PICTURE, 1))
    flat.predict(path, sample, "--watch", code=4)
    assert "has no reference.json" in capsys.readouterr().err
