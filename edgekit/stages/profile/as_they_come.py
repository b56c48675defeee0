"""The network as it is on every runtime, before any compression: what a change of runtime alone is worth."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.config import TARGETS, Target
from edgekit.eager import eager_call, single_thread
from edgekit.errors import ConversionError, ResourceError
from edgekit.quiet import quiet_native
from edgekit.runner import intervals
from edgekit.runner.bench import interleaved
from edgekit.runner.errors import RunnerError
from edgekit.targets import launch, operators, timed

EAGER, COMPILED, SCRIPTED = "PyTorch eager", "torch.compile", "TorchScript"
RUNTIME = {"onnx": "ONNX Runtime", "tflite": "LiteRT", "openvino": "OpenVINO"}
ROUNDS = 10
CONFIDENCE = 0.99

Row = dict[str, Any]


def measure(
    module: nn.Module,
    folder: Path,
    x: np.ndarray,
    calls: int,
    operator_calls: int,
    *,
    compiling: bool,
    runtimes: bool,
    timeout_s: float,
) -> tuple[list[Row], dict[str, list[Row]]]:
    """A row for each way to run the saved network in float32 on one thread, and each runtime's operators.

    `x` (1, C, H, W) or (1, F) float32. A way that fails has a `reason` in place of figures. `ratio` is the time of
    PyTorch eager over that of the row, round by round, with its interval.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-runtimes-") as scratch:
        ways, failed, made = _ways(module, folder, x, Path(scratch), compiling, runtimes, timeout_s)
        samples_ms: Mapping[str, np.ndarray] = {}
        with single_thread():
            samples_ms = interleaved(ways, ROUNDS, max(2, calls // ROUNDS), 3)
        inside = {}
        for target, one in made.items():
            try:
                inside[target] = operators.measure(
                    target, one.step.out, one.files, one.as_input(x), operator_calls, timeout_s
                )
            except ConversionError as error:
                print(f"profile: {error}")
        sizes = {RUNTIME[target]: one.bytes for target, one in made.items()}
        rows = [_row(way, samples_ms, sizes.get(way)) for way in ways]
    return rows + [{"way": way, "reason": reason} for way, reason in failed.items()], inside


def _ways(
    module: nn.Module, folder: Path, x: np.ndarray, scratch: Path, compiling: bool, runtimes: bool, timeout_s: float
) -> tuple[dict[str, Callable[[], object]], dict[str, str], dict[str, timed.Converted]]:
    """What can be called, why the others cannot, and the converted files by target."""
    ways: dict[str, Callable[[], object]] = {EAGER: eager_call(module, x)}
    failed: dict[str, str] = {}
    made: dict[str, timed.Converted] = {}
    for name, make in ((COMPILED, _compiled), (SCRIPTED, _scripted)):
        if name == COMPILED and not compiling:
            failed[name] = "left out: profile.compiling is false"
            continue
        try:
            ways[name] = make(module, x)
        except Exception as error:  # a missing C++ compiler, an operator that neither can trace: of any class
            failed[name] = _first_line(error)
    if not runtimes:
        return ways, {**failed, **{name: "left out: profile.runtimes is false" for name in RUNTIME.values()}}, made

    def convert(target: Target) -> timed.Converted | str:
        try:
            mine = scratch / target
            mine.mkdir()
            one = timed.convert_plainly({"baseline": folder}, x, [target], ["fp32"], mine, timeout_s)
            return next(iter(one.values()))
        except (ConversionError, ResourceError) as error:
            return _first_line(error)

    with ThreadPoolExecutor(launch.PARALLEL) as pool:
        outcomes = dict(zip(TARGETS, pool.map(convert, TARGETS), strict=True))
    for target, outcome in outcomes.items():
        try:
            if isinstance(outcome, str):
                raise RunnerError(outcome)
            ways[RUNTIME[target]] = outcome.call(x)
            made[target] = outcome
        except RunnerError as error:
            failed[RUNTIME[target]] = _first_line(error)
    return ways, failed, made


def _compiled(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    began = time.perf_counter()
    with quiet_native(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = eager_call(torch.compile(module), x)  # type: ignore[arg-type]
        with single_thread():
            call()
    print(f"profile: torch.compile took {time.perf_counter() - began:.1f} s")
    return call


def _scripted(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is deprecated
        traced = torch.jit.freeze(torch.jit.trace(module.eval(), torch.from_numpy(x)))

    def call() -> np.ndarray:
        with torch.inference_mode():
            y: np.ndarray = traced(torch.from_numpy(x)).numpy()
            return y

    call()
    return call


def _row(way: str, samples_ms: Mapping[str, np.ndarray], size_bytes: int | None) -> Row:
    median = intervals.p50(samples_ms[way], ROUNDS, CONFIDENCE)
    faster = intervals.ratio(samples_ms[EAGER], samples_ms[way], ROUNDS, CONFIDENCE)
    return {
        "way": way,
        "p50_ms": median.p50_ms,
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "ratio": faster.ratio,
        "ratio_low": faster.low,
        "ratio_high": faster.high,
        "bytes": size_bytes,
    }


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
