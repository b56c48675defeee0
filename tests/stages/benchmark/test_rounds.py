"""When rounds end: the messages before and after, and that a limit leaves an honest decision."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core import progress, replay
from edgekit.core.errors import ConfigError
from edgekit.device.measure import bench, conditions
from edgekit.stages.benchmark import rounds
from edgekit.stages.benchmark.config import BenchmarkConfig
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun, run_edgekit
from tests.stages.benchmark.synthetic import BASELINE, row

VARIANT = "baseline-fp32-tflite"
ROWS = [BASELINE, row(VARIANT)]


def config(**options: Any) -> BenchmarkConfig:
    given = {"rounds": 10, "calls_per_round": 5, "warmup_per_round": 1, "targets": ["tflite"], **options}
    return BenchmarkConfig.model_validate(given)


def opener(paces_ms: Iterator[float]) -> Callable[[], Callable[[], object]]:
    """Each opening has a pace of its own, as where memory lies makes it."""

    def opened() -> Callable[[], object]:
        pace_s = next(paces_ms) / 1000
        return lambda: time.sleep(pace_s)

    return opened


def noisy() -> dict[str, Callable[[], Callable[[], object]]]:
    """Two whose ratio nobody can measure within 1 %."""
    return {
        "baseline-eager": opener(itertools.repeat(1.0)),
        VARIANT: opener(itertools.cycle([0.5, 2.0, 0.7, 1.4])),
    }


def measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: BenchmarkConfig, recorded: Any = None
) -> tuple[Any, str]:
    file = tmp_path / "progress"
    file.touch()
    monkeypatch.setenv(progress.FILE, str(file))
    monkeypatch.setattr(progress, "_messages", [])  # what earlier tests of this process said
    with conditions.ConditionsRecorder() as watch:
        found = rounds.measure_rounds(ROWS, noisy(), options, watch, recorded)
    state = progress.read_state(file)
    assert state is not None
    return found, "\n".join(text for _, text in state.said)


def test_a_limit_in_minutes_ends_rounds_and_says_what_stayed_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = config(most_rounds=10_000, most_minutes=0.03, tie_margin=1.0)
    found, messages = measure(tmp_path, monkeypatch, options)
    done = len(found.timings.samples_ms[VARIANT]) // 5
    assert found.timings.rounds >= 10 and done < 10_000
    (line,) = [line for line in found.stayed_open if line.startswith("gain of convert: ")]
    assert line.endswith(f"rounds ended after {done} rounds, at the limit of 0.03 min set by benchmark.most_minutes")
    assert "Timing 2 models in 10 rounds should take about " in messages
    assert ", or up to 10000 rounds and 2 s (benchmark.most_minutes) if variants are too close to call" in messages
    ended = f"Timing stopped after {done} rounds, at the limit of 0.03 min set by benchmark.most_minutes"
    assert re.search(
        rf"{re.escape(ended)}; \d comparisons? (is|are) still too close to call, see the report\.", messages
    ), messages


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"most_rounds": 10},
            r"Timing 2 models in 10 rounds should take about \d+ s \(limit: 20 min, benchmark\.most_minutes\)\.",
        ),
        (
            {"rounds": 10_000, "most_rounds": 10_000, "most_minutes": 0.25},
            r"Timing 2 models in 10000 rounds should take about [1-9]\d* min, "
            r"so it is cut to the limit of 15 s \(benchmark\.most_minutes\)\.",
        ),
        (
            {"rounds": 10_000, "most_rounds": 10_000, "most_minutes": 0.001},
            r"Timing 2 models for the 10 required rounds should take about \d+ s, "
            r"which is longer than the limit of 1 s \(benchmark\.most_minutes\)\.",
        ),
    ],
    ids=["enough", "cut", "less than the least"],
)
def test_the_notice_does_not_contradict_itself(options: dict[str, Any], words: str) -> None:
    notice = rounds.expected_duration(noisy(), config(**options))
    assert re.fullmatch(words, notice), notice


def test_the_limit_in_rounds_is_named_where_it_was_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, messages = measure(tmp_path, monkeypatch, config(most_rounds=10, tie_margin=1.0))
    assert found.stayed_open and all("the limit set by benchmark.most_rounds" in line for line in found.stayed_open)
    assert "if variants are too close to call" not in messages


def test_what_is_settled_stays_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is far from 1 needs no interval of ±1 %."""
    monkeypatch.setattr("tests.stages.benchmark.test_rounds.noisy", lambda: {
        "baseline-eager": opener(itertools.repeat(20.0)), VARIANT: opener(itertools.repeat(1.0))
    })  # fmt: skip
    found, messages = measure(tmp_path, monkeypatch, config(most_rounds=20))
    assert found.stayed_open == [] and "too close to call, see" not in messages


class Simulated:
    """A clock that calls advance by simulated latencies; each opening has a pace of its own, each call some noise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        self._random = np.random.default_rng(7)
        monkeypatch.setattr(bench, "perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr(bench, "perf_counter", lambda: self.now_ns / 1e9)

    def opener(self, p50_ms: float, noise: float) -> Callable[[], Callable[[], object]]:
        def opened() -> Callable[[], object]:
            pace_ms = p50_ms * math.exp(self._random.normal(0, noise))

            def call() -> None:
                self.now_ns += round(1e6 * pace_ms * math.exp(self._random.normal(0, 0.01)))

            return call

        return opened

    def measure(
        self, latencies: dict[str, tuple[float, float]], options: BenchmarkConfig, sizes: dict[str, int]
    ) -> Any:
        openers = {name: self.opener(*each) for name, each in {"baseline-eager": (9.0, 0.0), **latencies}.items()}
        with conditions.ConditionsRecorder() as watch:
            return rounds.measure_rounds(
                [BASELINE, *(row(name, size=sizes.get(name, 1000)) for name in latencies)],
                openers,
                options,
                watch,
                None,
            )


def rounds_by_name(measured: Any, calls: int = 5) -> dict[str, int]:
    return {name: len(samples) // calls for name, samples in measured.timings.samples_ms.items()}


def test_rounds_end_with_the_first_where_everything_is_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = {
        "baseline-fp32-tflite": (3.0, 0.02),
        "student-fp32-tflite": (0.5, 0.02),
        "student-int8-tflite": (0.2, 0.02),
    }
    found = Simulated(monkeypatch).measure(latencies, config(most_rounds=200), {})
    assert set(rounds_by_name(found).values()) == {10}
    assert found.stayed_open == [] and found.decision.metrics["winner"] == "student-int8-tflite"


def test_a_gain_near_one_goes_on_with_the_two_variants_that_it_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = {
        "baseline-fp32-tflite": (3.0, 0.02),
        "student-fp32-tflite": (0.5, 0.02),
        "student-int8-tflite": (0.48, 0.02),
    }
    found = Simulated(monkeypatch).measure(latencies, config(most_rounds=2000), {})
    counts = rounds_by_name(found)
    assert counts["baseline-eager"] == counts["baseline-fp32-tflite"] == 10
    assert counts["student-fp32-tflite"] == counts["student-int8-tflite"] > 10
    assert found.stayed_open == []
    step = found.decision.metrics["waterfall"][-1]
    assert step["gain_high"] <= step["gain_low"] * 1.01**2 and step["gain_low"] < 0.5 / 0.48 < step["gain_high"]


def test_an_open_winner_goes_on_without_what_is_significantly_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smaller file takes just less than a tie longer than the fastest, so it is open whether it wins."""
    latencies = {
        "student-fp32-tflite": (3.0, 0.03),
        "pruned-fp32-tflite": (1.0, 0.03),
        "pruned-int8-tflite": (1.06, 0.03),
    }
    given = config(most_rounds=2000)
    found = Simulated(monkeypatch).measure(latencies, given, {"pruned-int8-tflite": 100})
    counts = rounds_by_name(found)
    assert counts["pruned-fp32-tflite"] == counts["pruned-int8-tflite"] > counts["student-fp32-tflite"] == 10
    assert found.stayed_open == [] and found.decision.metrics["winner"] == "pruned-int8-tflite"
    (decision,) = [each for each in found.decision.decisions if each["decision"] == "winner of tflite"]
    winner = next(each for each in decision["candidates"] if each["name"] == "pruned-int8-tflite")
    assert winner["ratio_high"] <= 1 + given.tie_margin


def test_what_the_limit_leaves_unresolved_is_listed_and_not_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    latencies = {"student-fp32-tflite": (0.5, 0.1), "student-int8-tflite": (0.48, 0.1)}
    found = Simulated(monkeypatch).measure(latencies, config(most_rounds=30), {})
    assert max(rounds_by_name(found).values()) == 30
    assert any(line.startswith("gain of quantize") for line in found.stayed_open)
    assert all(
        line.endswith("rounds ended after 30 rounds, the limit set by benchmark.most_rounds")
        for line in found.stayed_open
    )
    step = found.decision.metrics["waterfall"][-1]
    assert step["gain_low"] <= 1 <= step["gain_high"]


def test_a_decision_under_a_limit_is_recorded_and_replayed_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(most_rounds=10_000, most_minutes=0.001, tie_margin=1.0)
    found, _ = measure(tmp_path, monkeypatch, given)
    content = found.decision.content
    assert set(content["measured"]) == set(replay.DECISION_FIELDS["benchmark"])
    assert "stayed_open" not in json.dumps(content) and "most_minutes" not in json.dumps(content)
    replay.write(tmp_path, {"benchmark": content["measured"]})
    recorded = replay.read(tmp_path, "benchmark")
    again, _ = measure(tmp_path, monkeypatch, given, recorded)
    assert again.decision.content == content
    assert again.decision.decisions[0]["replayed"]


@pytest.mark.parametrize("minutes", [0.0, -1.0, 10_081.0])
def test_minutes_out_of_range_are_refused(minutes: float) -> None:
    with pytest.raises(ConfigError, match="benchmark.most_minutes: got"):
        load_plan(TINY, [f"benchmark.most_minutes={minutes}"])


@pytest.mark.long
def test_the_notebook_the_console_and_the_result_say_what_stayed_open(tiny_run: FinishedRun, tmp_path: Path) -> None:
    shutil.copytree(tiny_run.folder, tmp_path / "tiny")
    settings = ["benchmark.most_rounds=10000", "benchmark.most_minutes=0.001", "benchmark.tie_margin=1.0"]
    settings += ["benchmark.confidence=0.999", "targets=[onnx]"]  # int8 is nearly as fast as float there: it stays open
    arguments = [word for setting in settings for word in ("--set", setting)]
    done = run_edgekit("run", str(TINY), "--out", str(tmp_path), "-v", *arguments)
    assert done.returncode == 0, done.stderr
    stayed_open = json.loads((tmp_path / "tiny/result.json").read_text())["conditions"]["stayed_open"]
    assert stayed_open and "0.001 min set by benchmark.most_minutes" in stayed_open[0]
    assert f"Not settled: {stayed_open[0]}." in done.stdout
    notice = r"^\[6/7\] benchmark · Timing \d+ models for the 10 required rounds should take about .*, which is longer"
    assert re.search(notice, done.stderr, re.M)
    executed = json.loads((tmp_path / "tiny/notebooks/06_benchmark.ipynb").read_text())
    printed = "".join(
        "".join(output.get("text", "")) for cell in executed["cells"] for output in cell.get("outputs", [])
    )
    assert f"not settled: {stayed_open[0]}" in printed
    assert "stayed open" in (tmp_path / "tiny/report.html").read_text()
