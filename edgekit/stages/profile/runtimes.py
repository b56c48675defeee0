"""Time the unmodified network on every runtime, which shows the speed-up from changing the runtime alone."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import nn

from edgekit.core import progress
from edgekit.core.config import TARGETS, Target
from edgekit.core.errors import ConversionError, ResourceError
from edgekit.core.schema.profile import Operator, RuntimeTime
from edgekit.device.measure import conditions, intervals
from edgekit.device.measure.bench import timed_openings
from edgekit.measure import latency
from edgekit.measure.forecast import RUNTIMES, baseline_runtime
from edgekit.models import baseline, store
from edgekit.models.eager import eager_call, single_thread
from edgekit.runner.native_stderr import quiet_native
from edgekit.targets import launch, profile

COMPILED, SCRIPTED = "torch.compile", "TorchScript"
ROUNDS = 10
WARM_UP_CALLS = 3
CONFIDENCE = 0.99

Opener = Callable[[], Callable[[], object]]


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
) -> tuple[list[RuntimeTime], dict[str, list[Operator]], list[str]]:
    """Time the saved network in float32 on one thread with each runtime.

    `x` has shape (1, C, H, W) or (1, F), float32. Each round opens the model anew with every runtime, because the place
    of the weights in memory affects the time. Compiled and traced networks are not prepared anew, because that would
    take minutes.

    Returns one row for each runtime, the operators by target, and reasons why the measurement may be noisy. In a row,
    `ratio` is the time of the unmodified baseline divided by the time of that runtime. It is computed round by round
    and has an interval. A runtime that fails has a `reason` instead of figures.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-runtimes-") as scratch:
        spec = store.read_spec(folder)
        unmodified = baseline_runtime(spec.interpreter)
        openers, reasons, converted = _openers(spec, module, folder, x, Path(scratch), compiling, runtimes, timeout_s)
        with (
            progress.step("timing", "round", ROUNDS) as bar,
            single_thread(),
            conditions.ConditionsRecorder() as recorder,
        ):
            calls = calls if len(openers) > 1 else calls // 3  # one runtime is compared with nothing
            counts = (ROUNDS, ROUNDS, max(2, calls // ROUNDS), WARM_UP_CALLS)
            samples_ms, rounds = next(
                timed_openings(openers, *counts, on_round=progress.call_both(recorder.sample, bar.update))
            )
        noise = float(np.median([conditions.noise(each, rounds) for each in samples_ms.values()]))
        operators: dict[str, list[Operator]] = {}
        for target, model in progress.track(list(converted.items()), "operator table", lambda item: RUNTIMES[item[0]]):
            try:
                operators[target] = profile.measure(
                    target, model.step.out, model.files, model.as_input(x), operator_calls, timeout_s
                )
            except ConversionError as error:
                print(f"profile: {error}")
        sizes = {RUNTIMES[target]: model.bytes for target, model in converted.items()}
        rows = [_row(runtime, unmodified, samples_ms, sizes.get(runtime)) for runtime in openers]
    left_out: list[RuntimeTime] = [{"way": runtime, "reason": reason} for runtime, reason in reasons.items()]
    return rows + left_out, operators, conditions.noise_reasons(recorder.result(noise))


def _openers(
    spec: store.ModelSpec,
    module: nn.Module,
    folder: Path,
    x: np.ndarray,
    scratch: Path,
    compiling: bool,
    runtimes: bool,
    timeout_s: float,
) -> tuple[dict[str, Opener], dict[str, str], dict[str, latency.ConvertedModel]]:
    """Return an opener for each runtime that works, the reasons why the others do not, and the converted models."""
    openers: dict[str, Opener] = {baseline_runtime(spec.interpreter): baseline.opener(folder, module, spec, x)}
    reasons: dict[str, str] = {}
    converted: dict[str, latency.ConvertedModel] = {}

    def convert(target: Target) -> latency.ConvertedModel | str:
        try:
            target_folder = scratch / target
            target_folder.mkdir()
            models, failures = latency.convert_models(
                {"baseline": folder}, x, [target], ["fp32"], target_folder, timeout_s
            )
            return failures[0].reason if failures else next(iter(models.values()))
        except (ConversionError, ResourceError) as error:
            return _first_line(error)

    with ThreadPoolExecutor(launch.parallel_conversions()) as pool:
        conversions = {target: pool.submit(convert, target) for target in TARGETS if runtimes}
        for name, prepare in ((COMPILED, _compile), (SCRIPTED, _trace)):  # in parallel with the conversions
            if not spec.is_torch:
                reasons[name] = "left out: the baseline is not a PyTorch network"
                continue
            if name == COMPILED and not compiling:
                reasons[name] = "left out: profile.compiling is false"
                continue
            try:
                openers[name] = _constant_opener(prepare(module, x))
            except Exception as error:  # of any class: a missing C++ compiler, an operator that cannot be traced
                reasons[name] = _first_line(error)
        outcomes = {target: future.result() for target, future in conversions.items()}
    if not runtimes:
        reasons |= {name: "left out: profile.runtimes is false" for name in RUNTIMES.values()}
    for target, outcome in outcomes.items():
        if isinstance(outcome, str):
            reasons[RUNTIMES[target]] = outcome
            continue
        opener = partial(outcome.call, x)
        try:
            opener()()
        except Exception as error:  # interpreters raise their own classes; the other runtimes are still timed
            reasons[RUNTIMES[target]] = _first_line(error)
            continue
        openers[RUNTIMES[target]], converted[target] = opener, outcome
    return openers, reasons, converted


def _constant_opener(call: Callable[[], object]) -> Opener:
    return lambda: call


def _compile(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    started = time.perf_counter()
    with progress.step(COMPILED), quiet_native(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call = eager_call(torch.compile(module), x)  # type: ignore[arg-type]
        with single_thread():
            call()
    print(f"profile: torch.compile took {time.perf_counter() - started:.1f} s")
    return call


def _trace(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        traced = torch.jit.freeze(torch.jit.trace(module.eval(), torch.from_numpy(x)))

    def call() -> np.ndarray:
        with torch.inference_mode():
            y: np.ndarray = traced(torch.from_numpy(x)).numpy()
            return y

    call()
    return call


def _row(runtime: str, unmodified: str, samples_ms: Mapping[str, np.ndarray], size_bytes: int | None) -> RuntimeTime:
    median = intervals.p50_interval(samples_ms[runtime], ROUNDS, CONFIDENCE)
    speedup = intervals.ratio_interval(samples_ms[unmodified], samples_ms[runtime], ROUNDS, CONFIDENCE)
    return {
        "way": runtime,
        "p50_ms": median.p50_ms,
        "low_ms": median.low_ms,
        "high_ms": median.high_ms,
        "ratio": speedup.ratio,
        "ratio_low": speedup.low,
        "ratio_high": speedup.high,
        "bytes": size_bytes,
    }


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
