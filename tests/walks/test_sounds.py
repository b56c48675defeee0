"""Sounds through the whole walk: WAV files in, a bundle out that answers WAV files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import TINY, run_edgekit
from tests.data.sources.test_wav_folder import RATE_HZ, folder, sound

pytestmark = pytest.mark.long
SAMPLES = 2000


def test_sounds_walk_through_to_a_bundle_that_hears(tmp_path: Path) -> None:
    values = yaml.safe_load(TINY.read_text())
    values |= {
        "name": "tones",
        "data": {
            "source": "wav_folder",
            "path": str(folder(tmp_path / "sounds", 400, SAMPLES)),
            "rate_hz": RATE_HZ,
            "seconds": SAMPLES / RATE_HZ,
            "calibration_samples": 60,
        },
        "preprocess": [
            {
                "step": "log_mel", "rate_hz": RATE_HZ, "window_samples": 200, "hop_samples": 120, "fft_samples": 256,
                "mels": 16, "low_hz": 50.0, "high_hz": 4000.0, "floor": 1e-6,
            },
            {"step": "normalize", "mean": [-5.0], "std": [5.0]},
        ],
    }  # fmt: skip
    config = tmp_path / "tones.yaml"
    config.write_text(yaml.safe_dump(values))
    done = run_edgekit("run", str(config), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "tones/result.json").read_text())
    assert result["variants"][0]["accuracy_test"] > 0.9
    bundles = tmp_path / "tones/bundles"
    (tmp_path / "high.wav").write_bytes(sound(SAMPLES, 1100))
    for entry in result["bundles"].values():
        command = [sys.executable, "-I", str(bundles / "edgerun.pyz"), "predict", str(bundles / entry["file"])]
        told = subprocess.run([*command, str(tmp_path / "high.wav")], capture_output=True, text=True, check=False)
        assert told.returncode == 0, told.stderr
        assert "high" in told.stdout
