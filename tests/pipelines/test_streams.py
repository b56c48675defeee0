"""A keyword in one long recording with its label track: from `edgekit init` to bundles that answer a stream."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from edgekit.runner import load
from tests.conftest import run_edgekit
from tests.runner.flat import form, riff

pytestmark = pytest.mark.long
RATE_HZ = 4000
WORD_S, PAUSE_S = 0.5, 1.0
INTERPRETERS = {"tflite": "litert", "onnx": "onnxruntime", "openvino": "openvino"}


def street(seconds: float, seed: int) -> tuple[np.ndarray, str]:
    """Noise (samples,) int16 with a rising tone now and then, and its label track; some of the tones are faint."""
    random = np.random.default_rng(seed)
    x, lines, at = random.normal(0, 2500, round(seconds * RATE_HZ)), [], PAUSE_S
    time = np.arange(round(WORD_S * RATE_HZ)) / RATE_HZ
    while at + WORD_S + PAUSE_S < seconds:
        first = round(at * RATE_HZ)
        x[first : first + len(time)] += random.uniform(1200, 5000) * np.sin(2 * np.pi * (400 + 600 * time) * time)
        lines.append(f"{first / RATE_HZ:.6f}\t{first / RATE_HZ + WORD_S:.6f}\tword\n")
        at += WORD_S + PAUSE_S + random.integers(0, 5) / 10
    return np.clip(x, -32000, 32000).astype("<i2"), "".join(lines)


def wav(path: Path, x: np.ndarray) -> Path:
    path.write_bytes(riff(form(1, 16, 1, RATE_HZ), x.tobytes()))
    return path


def predict(bundles: Path, entry: dict[str, Any], target: str, *more: str, stdin: bytes = b"") -> list[dict[str, Any]]:
    """The answers of `edgerun.pyz` in a process of its own."""
    command = [sys.executable, "-I", str(bundles / "edgerun.pyz"), "predict", str(bundles / entry["file"]), *more]
    command += ["--json", "--no-trial", "--interpreter", INTERPRETERS[target]]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_recording_becomes_bundles_whose_streams_are_smoothed_as_validation_chose(tmp_path: Path) -> None:
    x, track = street(300, seed=1)
    wav(tmp_path / "street.wav", x).with_suffix(".txt").write_text(track)
    begun = run_edgekit("init", "word", "--data", str(tmp_path / "street.wav"), "--out", str(tmp_path))
    assert begun.returncode == 0, begun.stderr
    config = tmp_path / "word.yaml"
    values = yaml.safe_load(config.read_text())
    assert values["data"]["background"] == "background" and values["bundle"] == {"smoothing": "auto"}
    kept = {name: values[name] for name in values if name not in ("distill", "prune", "quantize")}
    kept["profile"] |= {"epochs": 3, "runtimes": False, "latency_calls": 40, "operator_calls": 5, "warmup_calls": 5}
    kept["convert"] = {"precisions": ["fp32"]}
    kept["benchmark"] = {"rounds": 10, "calls_per_round": 5, "warmup_per_round": 2, "most_rounds": 10, "load_s": 0}
    kept["budget"] = {"accuracy_drop_pp": 20.0}
    chosen_by_rule = run(config, kept, tmp_path / "runs")
    for target in INTERPRETERS:
        found = chosen_by_rule["streams"][target]
        rows = found["candidates"]
        [chosen] = [row for row in rows if row["kept"]]
        assert found["background"] == "background" and found["events"] > 10 and found["hours"] > 0
        assert len(rows) == 13 and rows[0]["smoothing"] is None
        able = [row for row in rows if row["detected"] >= rows[0]["detected"]]
        assert chosen["false_alarms"] == min(row["false_alarms"] for row in able)
        assert chosen["per_hour_at_most"] > chosen["per_hour"]
        assert smoothing_of(tmp_path / "runs", chosen_by_rule, target) == chosen["smoothing"]
    page = (tmp_path / "runs/word/report.html").read_text()
    assert "Answers to a stream" in page and "false alarms" in page

    majority = {"method": "majority", "windows": 3}
    declared = run(config, {**kept, "bundle": {"smoothing": majority}}, tmp_path / "runs")
    again = {stage for stage, each in declared["stages"].items() if each != chosen_by_rule["stages"][stage]}
    assert again == {"bundle"}, "only what smoothing changes was made again"
    x, _ = street(30, seed=2)
    bundles = tmp_path / "runs/word/bundles"
    wav(tmp_path / "evening.wav", x)
    for target, entry in declared["bundles"].items():
        assert smoothing_of(tmp_path / "runs", declared, target) == majority
        filed = predict(bundles, entry, target, str(tmp_path / "evening.wav"))
        piped = predict(bundles, entry, target, "--stream", "s16le", "--when-slow", "wait", stdin=x.tobytes())
        assert [(line["window"], line["scores"]) for line in piped] == [
            (line["window"], line["scores"]) for line in filed
        ]
        labels = [line["label"] for line in piped]
        for number in range(2, len(piped)):
            last = labels[number - 2 : number + 1]
            assert piped[number]["smoothed"]["label"] == max(last, key=last.count)
        assert not any("smoothed" in line for line in filed)


def run(config: Path, values: dict[str, Any], out: Path) -> dict[str, Any]:
    """What `edgekit run` leaves in result.json."""
    config.write_text(yaml.safe_dump(values))
    done = run_edgekit("run", str(config), "--out", str(out), timeout_s=1500)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((out / "word/result.json").read_text())
    assert set(found["bundles"]) == set(found["streams"]) == set(INTERPRETERS)
    return found


def smoothing_of(out: Path, result: dict[str, Any], target: str) -> Any:
    return load(out / "word/bundles" / result["bundles"][target]["file"], trial=False).manifest.smoothing
