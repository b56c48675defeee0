"""The process that validates a release: it limits itself, then runs the self-test and measures the latency.

It prints one line of JSON. A model may crash, hang or exhaust the memory here without harm to the caller. Whatever
libraries print goes to standard error.
"""

from __future__ import annotations

import json
import os
import resource
import signal
from typing import TYPE_CHECKING, Any

from edgekit.runner.errors import RunnerError

if TYPE_CHECKING:
    from edgekit.runner.model import Model

ROUNDS, ROUND_MS, CALLS, WARMUP = 5, 1000, 200, 20
LARGEST_FILE_BYTES = 64 << 20
"""Limit for what the interpreter writes, including standard error."""


def main(text: str) -> None:
    """Validate one release.

    `text` is JSON: the fields of `validation.ValidationLimits`, and `path`, `sha256` and `interpreter`.
    """
    request = json.loads(text)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _limit(request)
    try:
        answer = _validate_release(request)
    except RunnerError as error:
        answer = {"problem": str(error), "kind": type(error).__name__}
    except MemoryError:
        answer = {"problem": f"needs more memory than the {request['memory_mb']} MB that it may use"}
    except ImportError as error:
        answer = {"problem": f"{error}; `edgerun doctor` shows what to install", "kind": "MissingInterpreterError"}
    answers.write(json.dumps(answer))
    answers.flush()


def _limit(request: dict[str, Any]) -> None:
    signal.alarm(int(request["wall_s"]) + 1)  # in case the parent has died and cannot end this process
    memory, cpu = request["memory_mb"] << 20, int(request["cpu_s"])
    limits = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: LARGEST_FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, hard))


def _validate_release(request: dict[str, Any]) -> dict[str, Any]:
    from edgekit.device.autotune import choice_cache
    from edgekit.device.releases.current_release import read_checked
    from edgekit.runner.bundle import check_architecture, read_bytes
    from edgekit.runner.model import open_model

    bundle = read_bytes(read_checked(request["path"], request["sha256"]), request["path"])
    check_architecture(bundle.manifest)
    choice = choice_cache.load_choice(choice_cache.choice_key(bundle.identity, (request["interpreter"], None, "CPU")))
    options = (choice.threads, choice.interpreter) if choice else (1, request["interpreter"])
    model = open_model(bundle, *options)
    report = model.selftest()
    facts = {"name": bundle.manifest.name, "version": bundle.manifest.version, "target": bundle.manifest.target}
    answer = {**facts, "selftest": report.to_dict(), "threads": options[0], "problem": ""}
    if not report.ok:
        return {**answer, "problem": _difference_text(report)}
    limit_ms = request["latency_ms"]
    if limit_ms is None:
        limit_ms = bundle.manifest.budget.get("latency_p50_ms")
    p50_ms = _p50_ms(model, limit_ms or 0)
    answer.update(p50_ms=p50_ms, limit_ms=limit_ms or None)
    if limit_ms and p50_ms > limit_ms:
        origin = "its budget is" if request["latency_ms"] is None else "the limit is"
        answer["problem"] = (
            f"too slow on this device: p50 {p50_ms:.3g} ms, but {origin} {limit_ms:g} ms (--latency-ms "
            f"sets another limit)"
        )
    return answer


def _difference_text(report: Any) -> str:
    return (
        f"wrong answers on this device: the golden samples differ by up to "
        f"{report.max_abs_delta:.3g}, but {report.atol:.3g} is allowed, on {report.interpreter} "
        f"{report.version}"
    )


def _p50_ms(model: Model, limit_ms: float) -> float:
    """Return the lowest p50 of some rounds of the model alone, because other work can only make a round slower.

    No further round is timed after one that meets the limit.
    """
    from statistics import median
    from time import perf_counter_ns

    x, best_ms = model.prepare(model.golden()[0][0]), float("inf")
    for _ in range(ROUNDS):
        times_ms: list[float] = []
        started = perf_counter_ns()
        while len(times_ms) < CALLS + WARMUP and (perf_counter_ns() - started < ROUND_MS * 1e6 or len(times_ms) < 3):
            before = perf_counter_ns()
            model.execute(x)
            times_ms.append((perf_counter_ns() - before) / 1e6)
        best_ms = min(best_ms, median(times_ms[min(WARMUP, len(times_ms) // 2) :]))
        if best_ms <= limit_ms:
            break
    return best_ms
