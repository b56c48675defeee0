"""The unmodified network on every runtime: the speed-up of a change of runtime alone."""

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
    """A row for each way to run the saved network in float32 on one thread, each runtime's operators, what disturbed.

    `x` (1, C, H, W) or (1, F) float32. A way that fails has a `reason` in place of figures. `ratio` is the time of
    the unmodified baseline over that of the row, round by round, with its interval. Each round opens every way anew,
    for where the weights come to lie in memory changes the time; not what torch compiled or traced, which would take
    minutes.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-runtimes-") as scratch:
        spec = store.read_spec(folder)
        unmodified = baseline_runtime(spec.interpreter)
        ways, failed, made = _openers(spec, module, folder, x, Path(scratch), compiling, runtimes, timeout_s)
        with (
            progress.step("timing", "round", ROUNDS) as shown,
            single_thread(),
            conditions.ConditionsRecorder() as watch,
        ):
            numbers = (ROUNDS, ROUNDS, max(2, calls // ROUNDS), WARM_UP_CALLS)
            samples_ms, rounds = next(
                timed_openings(ways, *numbers, on_round=progress.call_both(watch.sample, shown.update))
            )
        noise = float(np.median([conditions.noise(each, rounds) for each in samples_ms.values()]))
        inside: dict[str, list[Operator]] = {}
        for target, one in progress.track(list(made.items()), "operator table", lambda item: RUNTIMES[item[0]]):
            try:
                inside[target] = profile.measure(
                    target, one.step.out, one.files, one.as_input(x), operator_calls, timeout_s
                )
            except ConversionError as error:
                print(f"profile: {error}")
        sizes = {RUNTIMES[target]: one.bytes for target, one in made.items()}
        rows = [_row(way, unmodified, samples_ms, sizes.get(way)) for way in ways]
    left_out: list[RuntimeTime] = [{"way": way, "reason": reason} for way, reason in failed.items()]
    return rows + left_out, inside, conditions.noise_reasons(watch.result(noise))


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
    """What opens each way, why the others cannot be, and the converted files by target."""
    ways: dict[str, Opener] = {baseline_runtime(spec.interpreter): baseline.opener(folder, module, spec, x)}
    failed: dict[str, str] = {}
    made: dict[str, latency.ConvertedModel] = {}

    def convert(target: Target) -> latency.ConvertedModel | str:
        try:
            mine = scratch / target
            mine.mkdir()
            made, lost = latency.convert_models({"baseline": folder}, x, [target], ["fp32"], mine, timeout_s)
            return lost[0].reason if lost else next(iter(made.values()))
        except (ConversionError, ResourceError) as error:
            return _first_line(error)

    with ThreadPoolExecutor(launch.parallel_conversions()) as pool:
        converting = {target: pool.submit(convert, target) for target in TARGETS if runtimes}
        for name, make in ((COMPILED, _compiled), (SCRIPTED, _scripted)):  # while the targets are converted
            if not spec.is_torch:
                failed[name] = "left out: the baseline is no network of PyTorch's"
                continue
            if name == COMPILED and not compiling:
                failed[name] = "left out: profile.compiling is false"
                continue
            try:
                ways[name] = _always(make(module, x))
            except Exception as error:  # a missing C++ compiler, an operator that neither can trace: of any class
                failed[name] = _first_line(error)
        outcomes = {target: future.result() for target, future in converting.items()}
    if not runtimes:
        failed |= {name: "left out: profile.runtimes is false" for name in RUNTIMES.values()}
    for target, outcome in outcomes.items():
        if isinstance(outcome, str):
            failed[RUNTIMES[target]] = outcome
            continue
        opener = partial(outcome.call, x)
        try:
            opener()()
        except Exception as error:  # an interpreter's own, too: the failure is recorded, and the others continue
            failed[RUNTIMES[target]] = _first_line(error)
            continue
        ways[RUNTIMES[target]], made[target] = opener, outcome
    return ways, failed, made


def _always(call: Callable[[], object]) -> Opener:
    return lambda: call


def _compiled(module: nn.Module, x: np.ndarray) -> Callable[[], np.ndarray]:
    began = time.perf_counter()
    with progress.step(COMPILED), quiet_native(), warnings.catch_warnings():
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


def _row(way: str, unmodified: str, samples_ms: Mapping[str, np.ndarray], size_bytes: int | None) -> RuntimeTime:
    median = intervals.p50_interval(samples_ms[way], ROUNDS, CONFIDENCE)
    faster = intervals.ratio_interval(samples_ms[unmodified], samples_ms[way], ROUNDS, CONFIDENCE)
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
