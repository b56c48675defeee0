"""The process that proves a release: limits of its own, then the golden vectors and the latency. Prints one JSON line.

A model may crash, hang or fill the memory there without harm to whoever asked. All that others print goes to standard
error.
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
"""Of what the interpreter writes, its words on standard error among it."""


def main(text: str) -> None:
    """Prove what `text` asks for: see `proof.Limits`, and `path`, `sha256` and `interpreter`."""
    asked = json.loads(text)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _limit(asked)
    try:
        answer = _validate_release(asked)
    except RunnerError as error:
        answer = {"problem": str(error), "kind": type(error).__name__}
    except MemoryError:
        answer = {"problem": f"needs more memory than the {asked['memory_mb']} MB that it may use"}
    except ImportError as error:
        answer = {"problem": f"{error}; `edgerun doctor` says what to install", "kind": "MissingInterpreterError"}
    answers.write(json.dumps(answer))
    answers.flush()


def _limit(asked: dict[str, Any]) -> None:
    signal.alarm(int(asked["wall_s"]) + 1)  # also where nobody is left to end this process
    memory, cpu = asked["memory_mb"] << 20, int(asked["cpu_s"])
    wanted = {
        resource.RLIMIT_DATA: memory,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: LARGEST_FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in wanted.items():
        hard = resource.getrlimit(kind)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, hard))


def _validate_release(asked: dict[str, Any]) -> dict[str, Any]:
    from edgekit.device.autotune import choice_cache
    from edgekit.device.releases.current_release import read_checked
    from edgekit.runner.bundle import check_architecture, read_bytes
    from edgekit.runner.model import open_model

    bundle = read_bytes(read_checked(asked["path"], asked["sha256"]), asked["path"])
    check_architecture(bundle.manifest)
    known = choice_cache.load_choice(choice_cache.choice_key(bundle.identity, (asked["interpreter"], None, "CPU")))
    how = (known.threads, known.interpreter) if known else (1, asked["interpreter"])
    model = open_model(bundle, *how)
    report = model.selftest()
    facts = {"name": bundle.manifest.name, "version": bundle.manifest.version, "target": bundle.manifest.target}
    answer = {**facts, "selftest": report.to_dict(), "threads": how[0], "problem": ""}
    if not report.ok:
        return {**answer, "problem": _difference_text(report)}
    limit_ms = asked["latency_ms"]
    if limit_ms is None:
        limit_ms = bundle.manifest.budget.get("latency_p50_ms")
    found_ms = _p50_ms(model, limit_ms or 0)
    answer.update(p50_ms=found_ms, limit_ms=limit_ms or None)
    if limit_ms and found_ms > limit_ms:
        whose = "its budget is" if asked["latency_ms"] is None else "the limit is"
        answer["problem"] = f"too slow here: p50 {found_ms:.3g} ms, {whose} {limit_ms:g} ms (--latency-ms sets another)"
    return answer


def _difference_text(report: Any) -> str:
    return (
        f"answers wrongly here: the golden vectors differ by up to {report.max_abs_delta:.3g}, {report.atol:.3g} is "
        f"allowed, on {report.interpreter} {report.version}"
    )


def _p50_ms(model: Model, limit_ms: float) -> float:
    """The least p50 of some rounds of the model alone: what else runs here makes a model slower, never faster."""
    from statistics import median
    from time import perf_counter_ns

    x, best_ms = model.prepare(model.golden()[0][0]), float("inf")
    for _ in range(ROUNDS):
        taken: list[float] = []
        begun = perf_counter_ns()
        while len(taken) < CALLS + WARMUP and (perf_counter_ns() - begun < ROUND_MS * 1e6 or len(taken) < 3):
            before = perf_counter_ns()
            model.execute(x)
            taken.append((perf_counter_ns() - before) / 1e6)
        best_ms = min(best_ms, median(taken[min(WARMUP, len(taken) // 2) :]))
        if best_ms <= limit_ms:
            break
    return best_ms
