"""Find the fastest interpreter and number of threads for a bundle on this device.

Each candidate gets a child process, in which it runs the self-test and may crash without harm. The candidates that pass
are timed in rounds, one child at a time, so that a device whose speed changes slows all of them down alike.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from edgekit.device.autotune import choice_cache
from edgekit.device.autotune.choice_cache import Choice
from edgekit.device.autotune.tuning_process import TuningProcess, prefix_fault
from edgekit.device.hardware import health
from edgekit.runner import backends
from edgekit.runner.errors import BackendError, SelftestError

if TYPE_CHECKING:
    from edgekit.device.autotune.tuning_process import OnProgress
    from edgekit.runner.bundle import Bundle

ROUNDS = 12
ROUND_MS = 40.0
TURNS_S = 6.0
"""After this time and at least three rounds, no further round begins."""
SELFTEST_S = 3.0
"""Time limit for the self-test of a candidate, which skips the remaining golden samples after this time."""
GIVE_UP_FACTOR = 2.0
"""A candidate that is this many times slower than the fastest in its first round is not timed further."""
TIE_FACTOR = 1.01
"""Of the candidates within this factor of the fastest, the preferred interpreter wins, then the fewest threads."""
LAST_RESORT = ("tensorflow",)
"""Interpreters that are tried only if no other works: they take seconds and hundreds of megabytes to import, and have
the same kernels as litert."""


@dataclass(frozen=True)
class Candidate:
    """An interpreter with a number of threads, and what was measured of it.

    `p50_ms` has one entry per round. `fault` says why the candidate is excluded. `wrong` means that its outputs differ
    from the golden answers.
    """

    interpreter: str
    threads: int
    version: str = ""
    p50_ms: tuple[float, ...] = ()
    open_ms: float = 0.0
    fault: str = ""
    wrong: bool = False

    @property
    def typical_ms(self) -> float:
        """The median of the rounds' p50s."""
        return median(self.p50_ms)


def find_best(
    path: str | os.PathLike[str],
    bundle: Bundle,
    threads: int | None,
    interpreter: str | None,
    device: str = "CPU",
    on_progress: OnProgress | None = None,
) -> Candidate:
    """Return the fastest candidate that passes its self-test. Raises SelftestError or BackendError if none does."""
    target = bundle.manifest.target
    quick = list_candidates(target, threads, interpreter, device)
    if on_progress is not None and len(quick) > 1:
        message = f"timing {len(quick)} combinations of interpreter and threads once (--no-trial skips this)"
        on_progress(f"first time with this bundle: {message}", False)
    exceeds_memory = _exceeds_memory(sum(len(data) for data in bundle.model_files().values()), len(quick))
    tried = time_candidates(path, bundle.identity, quick, device, one_at_a_time=exceeds_memory)
    if all(candidate.fault for candidate in tried):
        names = {candidate.interpreter for candidate in tried}
        slow = list_candidates(target, threads, interpreter, device, all_of_them=True)
        tried += time_candidates(
            path, bundle.identity, [candidate for candidate in slow if candidate.interpreter not in names], device
        )
    return select_best(tried)


def list_candidates(
    target: str, threads: int | None, interpreter: str | None, device: str = "CPU", all_of_them: bool = False
) -> list[Candidate]:
    """Return the candidates, preferred ones first. Raises BackendError if no interpreter is installed.

    Interpreters in `LAST_RESORT` are left out if another one is installed, unless `all_of_them` is set.
    """
    names = backends.installed_interpreters(target, interpreter)
    quick = [name for name in names if name not in LAST_RESORT]
    if quick and not all_of_them:
        names = quick
    if threads is not None:
        backends.check_threads(threads)
    counts = [threads] if threads else _thread_counts() if device == "CPU" else [1]
    return [Candidate(name, count) for name in names for count in counts]


def time_candidates(
    path: str | os.PathLike[str],
    identity: str,
    tried: Sequence[Candidate],
    device: str = "CPU",
    rounds: int = ROUNDS,
    one_at_a_time: bool = False,
) -> list[Candidate]:
    """Return the candidates with their latencies or their fault, in the same order. A single candidate is not timed.

    With `one_at_a_time`, each child process ends before the next one starts, so that a large model is in memory only
    once. The comparison is then less fair, because the candidates are not timed in turns.
    """
    results: dict[int, Candidate] = {}
    with ExitStack() as stack:
        running: dict[int, TuningProcess] = {}
        for number, candidate in enumerate(tried):
            child = stack.enter_context(TuningProcess(path, identity))
            results[number] = candidate = _validate(child, candidate, device)
            if not candidate.fault and len(tried) > 1:
                results[number] = candidate = _time_candidate(child, candidate, rounds if one_at_a_time else 0)
            fastest = min((each.p50_ms[0] for each in results.values() if each.p50_ms), default=0.0)
            promising = len(tried) > 1 and not candidate.fault and candidate.p50_ms[0] <= GIVE_UP_FACTOR * fastest
            if promising and not one_at_a_time:
                running[number] = child
            else:
                child.close()
        _time_in_turns(running, results, rounds)
    return [results[number] for number in range(len(tried))]


def select_best(tried: Sequence[Candidate]) -> Candidate:
    """Return the fastest candidate; among those within `TIE_FACTOR` of it, the first in the list.

    If every candidate has a fault, raises SelftestError or BackendError with all the faults.
    """
    valid = [candidate for candidate in tried if not candidate.fault]
    if not valid:
        reasons = "; ".join(dict.fromkeys(prefix_fault(candidate.interpreter, candidate.fault) for candidate in tried))
        kind = SelftestError if any(candidate.wrong for candidate in tried) else BackendError
        raise kind(
            f"no interpreter on this machine can run this bundle: {reasons}. `edgerun doctor BUNDLE` may show why"
        )
    if len(valid) == 1:
        return valid[0]
    complete = max(len(candidate.p50_ms) for candidate in valid)
    finalists = [candidate for candidate in valid if len(candidate.p50_ms) == complete]
    fastest = min(candidate.typical_ms for candidate in finalists)
    return next(candidate for candidate in finalists if candidate.typical_ms <= TIE_FACTOR * fastest)


def store_winner(
    path: str | os.PathLike[str],
    key: str,
    winner: Candidate,
    bundle: Bundle,
    device: str,
    on_progress: OnProgress | None = None,
) -> Choice:
    """Cache the winner, with OpenVINO's compiled model if that opens faster than the model file."""
    packages = [
        "numpy",
        *(backends.INTERPRETERS[each].package for each in backends.interpreters_for(bundle.manifest.target)),
    ]
    installed = {package: choice_cache.build_id(package) for package in packages}
    choice = Choice(winner.interpreter, winner.threads, device, installed)
    blob = _export_compiled(path, bundle.identity, winner, device) if winner.interpreter == "openvino" else b""
    if blob:
        from edgekit.runner.bundle import sha256

        choice = choice._replace(blob=sha256.hexdigest(blob))
    if not choice_cache.store_choice(key, choice, blob) and on_progress is not None:
        folder = choice_cache.cache_folder() or "a cache folder"
        on_progress(
            f"{folder} cannot be written, or other users can write there too, so every start repeats the timing; "
            "set XDG_CACHE_HOME to a folder of your own, or use --no-trial",
            True,
        )
    return choice


def _validate(child: TuningProcess, candidate: Candidate, device: str) -> Candidate:
    try:
        opened = child.ask("open", interpreter=candidate.interpreter, threads=candidate.threads, device=device)
        report = child.ask("selftest", most_s=SELFTEST_S)
    except BackendError as error:
        return replace(candidate, fault=str(error))
    candidate = replace(candidate, version=opened["version"], open_ms=opened["open_ms"])
    if report["ok"]:
        return candidate
    delta, atol = report["max_abs_delta"], report["atol"]
    fault = f"outputs differ from the golden samples: max |Δ| {delta:.3g}, allowed {atol:.3g}"
    return replace(candidate, fault=fault, wrong=True)


def _time_candidate(child: TuningProcess, candidate: Candidate, rounds: int) -> Candidate:
    """Time a first round, which shows how many calls fit into a round, and then `rounds` more in a row."""
    try:
        first = _round(child, None)
        return replace(candidate, p50_ms=(first, *(_round(child, first) for _ in range(rounds))))
    except BackendError as error:
        return replace(candidate, fault=str(error))


def _time_in_turns(running: dict[int, TuningProcess], results: dict[int, Candidate], rounds: int) -> None:
    """Time one round of each running candidate in turn, `rounds` times or fewer; see `TURNS_S`."""
    numbers = list(running)
    started = perf_counter()
    for turn in range(rounds):
        if turn > 2 and perf_counter() - started > TURNS_S:
            break
        start = turn % max(len(numbers), 1)
        for number in numbers[start:] + numbers[:start]:
            candidate = results[number]
            try:
                results[number] = replace(
                    candidate, p50_ms=(*candidate.p50_ms, _round(running[number], candidate.p50_ms[0]))
                )
            except BackendError as error:
                results[number] = replace(candidate, fault=str(error), p50_ms=())
        numbers = [number for number in numbers if not results[number].fault]


def _round(child: TuningProcess, expected_ms: float | None) -> float:
    """Return the p50 of one round, which has as many calls as fit into `ROUND_MS`."""
    calls = 10 if expected_ms is None else max(1, min(500, int(ROUND_MS / max(expected_ms, 1e-3))))
    warmup = 5 if expected_ms is None else max(1, calls // 5)  # the first calls are slow, because threads start
    times_ms: list[float] = child.ask("time", calls=calls, warmup=warmup, most_ms=5 * ROUND_MS)["ms"]
    return median(times_ms)


def _export_compiled(path: str | os.PathLike[str], identity: str, winner: Candidate, device: str) -> bytes:
    """Return OpenVINO's compiled model, or b"" if loading it is not clearly faster than compiling."""
    import tempfile

    with tempfile.NamedTemporaryFile() as file, TuningProcess(path, identity) as child:
        try:
            times = child.ask("compiled", threads=winner.threads, device=device, into=file.name)
        except BackendError:
            return b""
        return file.read() if times["restore_ms"] < 0.9 * times["open_ms"] else b""


def _exceeds_memory(model_bytes: int, count: int) -> bool:
    """Whether all candidates together would need over half of the free memory. Each holds three copies of the model."""
    available = health.memory_bytes()[1]
    return available is not None and 3 * model_bytes * count > available / 2


def _thread_counts() -> list[int]:
    """Return 1, 2, 4, … up to the number of usable cores, and that number."""
    cores = max(int(health.usable_cores() or 1), 1)
    return sorted({*(1 << power for power in range(cores.bit_length()) if 1 << power <= cores), cores})
