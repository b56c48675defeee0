"""Time one session end to end: start a process that opens the network and answers requests one after another.

The parent records when it starts the process, sends each request and receives each answer. The process records the
steps in between, so that the parts of a call leave no gap. Two errors remain possible: time between calls that belongs
to no part, and the cost of taking the time stamps. Both are measured: the time between calls as the share of the
session that the parts cover, and the cost of the time stamps by alternating calls with and without them.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from edgekit.core import subprocesses
from edgekit.core.errors import ModelError, StageError
from edgekit.core.schema.profile import SessionTime, StampOverhead
from edgekit.device import processes
from edgekit.device.measure import intervals
from edgekit.device.measure.bench import latency_summary
from edgekit.measure.eager_session import BARE

COLD = ("start Python", "import", "load", "warm-up")
"""The parts of a session that happen once."""
PARTS = ("queue", "preprocess", "execute", "postprocess", "serialise")
"""The parts of each call: waiting until the process reads the request, preprocessing the sample, running the network,
turning its scores into an answer, and writing the answer as text, sending and reading it."""

NAME = "the process that answers requests"
EXIT_GRACE_S = 5.0
ROUNDS = 20
CONFIDENCE = 0.99
MAX_OVERHEAD_S = 5.0
"""Seconds to compare calls with and without time stamps. Slow calls need few, because a stamp costs microseconds."""


def measure(model_folder: Path, samples: np.ndarray, calls: int, warmup_calls: int, timeout_s: float) -> dict[str, Any]:
    """Measure the latency of each part of a call, and the session as a whole.

    `samples` are raw, (n, ...), and requested in turn. The first `warmup_calls` calls count in the session, but not in
    the percentiles.

    Returns a dict with two entries. `latency` has the percentiles in ms of a complete call (`total`) and of each part
    of it, with the part's share of the mean. `session` has the figures of `_session` and `stamped`: after the session,
    calls with and without time stamps alternate, and `stamped` is the ratio of their p50s with its interval.

    Raises StageError if the process dies or exceeds `timeout_s`, and ModelError if the network cannot answer.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-session-") as folder:
        path = Path(folder) / "samples.npy"
        np.save(path, samples, allow_pickle=False)
        started_ns = time.perf_counter_ns()
        with open(Path(folder) / "log", "wb") as log:
            process = subprocesses.start(
                "edgekit.measure.eager_session:answer_requests",
                [str(model_folder), str(path)],
                {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                reads_input=True,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            deadline = time.monotonic() + timeout_s
            watchdog = threading.Timer(timeout_s, processes.kill_process, [process])  # in case it hangs
            watchdog.start()
            try:
                ready, stamps = _request_all(process, len(samples), warmup_calls + calls)
                stamp_overhead = _stamp_overhead(process, len(samples), _calls_with_stamps(stamps, calls))
            except (ValueError, OSError):  # the process sent nothing, or closed its standard input
                timed_out = time.monotonic() > deadline
                processes.has_ended(process, EXIT_GRACE_S)  # wait for its own exit code before it is killed below
                child_exit = subprocesses.ChildExit(processes.end_process(process), timed_out, Path(log.name))
                error_type = ModelError if child_exit.code == ModelError.exit_code else StageError
                raise error_type(f"profile: {_failure_reason(child_exit, timeout_s)}") from None
            finally:
                watchdog.cancel()
                processes.end_process(process)
                if process.stdout:
                    process.stdout.close()
    session = _session(started_ns, ready, stamps)
    return {"latency": _latency(stamps[warmup_calls:]), "session": {**session, "stamped": stamp_overhead}}


def _failure_reason(child_exit: subprocesses.ChildExit, timeout_s: float) -> str:
    if child_exit.code == ModelError.exit_code:
        return subprocesses.last_useful_line(child_exit.output)
    if not child_exit.timed_out:
        return child_exit.describe(NAME)
    return f"{NAME} did not end within {timeout_s:g} s; raise profile.timeout_s, or lower profile.latency_calls"


def _request_all(process: subprocess.Popen[bytes], samples: int, calls: int) -> tuple[dict[str, Any], np.ndarray]:
    """Return the message that the process sent when it was ready, and time stamps in ns of shape (calls, 6).

    The first stamp of a call is when the request was sent, the next four are taken by the process, and the last one is
    when the answer had been read.
    """
    assert process.stdout
    ready = json.loads(process.stdout.readline())
    requests = [b"%d\n" % (number % samples) for number in range(calls)]
    exchanges = [_request(process, request) for request in requests]  # do nothing else between two calls
    return ready, np.array(
        [(sent_ns, *answer["stamps"], read_ns) for sent_ns, answer, read_ns in exchanges], dtype=np.int64
    )


def _calls_with_stamps(stamps: np.ndarray, calls: int) -> int:
    """Return the calls in each round of `_stamp_overhead`: `calls` in all, or what fits into `MAX_OVERHEAD_S`."""
    call_s = float(np.median(stamps[:, 5] - stamps[:, 0])) / 1e9
    return max(1, min(calls // ROUNDS, int(MAX_OVERHEAD_S / (2 * ROUNDS * call_s))))


def _stamp_overhead(process: subprocess.Popen[bytes], samples: int, calls: int) -> StampOverhead:
    """Compare calls with and without time stamps, `calls` of each in every round, with alternating order."""
    samples_ms: dict[str, list[float]] = {"\n": [], BARE: []}
    for number in range(ROUNDS):
        for suffix in sorted(samples_ms, reverse=bool(number % 2)):
            for call in range(calls):
                sent_ns, _, read_ns = _request(process, f"{(number * calls + call) % samples}{suffix}".encode())
                samples_ms[suffix].append((read_ns - sent_ns) / 1e6)
    with_stamps, without_stamps = (np.array(samples_ms[suffix]) for suffix in ("\n", BARE))
    return cast("StampOverhead", asdict(intervals.ratio_interval(with_stamps, without_stamps, ROUNDS, CONFIDENCE)))


def _request(process: subprocess.Popen[bytes], request: bytes) -> tuple[int, dict[str, Any], int]:
    """Send a request. Returns when it was sent in ns, the answer, and when the answer had been read in ns."""
    assert process.stdin and process.stdout
    sent_ns = time.perf_counter_ns()
    process.stdin.write(request)
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return sent_ns, answer, time.perf_counter_ns()


def _latency(stamps: np.ndarray) -> dict[str, dict[str, float]]:
    parts_ms = np.diff(stamps, axis=1).T / 1e6
    total_ms = (stamps[:, 5] - stamps[:, 0]) / 1e6
    latency = {"total": {**latency_summary(total_ms), "share": 1.0}}
    for name, part_ms in zip(PARTS, parts_ms, strict=True):
        latency[name] = {**latency_summary(part_ms), "share": float(part_ms.mean() / total_ms.mean())}
    return latency


def _session(started_ns: int, ready: Mapping[str, int], stamps: np.ndarray) -> SessionTime:
    """Return the total time of each part in ms, the length of the session, and the share of it that the parts cover.

    `calls_covered` compares each call with the time from its start to the start of the next call: it is the share of
    this time that the parts of the call cover, as the median over all calls.
    """
    cold_parts = np.diff([started_ns, ready["began"], ready["imported"], ready["loaded"], ready["warm"]]) / 1e6
    call_parts = np.diff(stamps, axis=1).sum(axis=0) / 1e6
    parts_ms = {name: float(value) for name, value in zip((*COLD, *PARTS), (*cold_parts, *call_parts), strict=True)}
    session_ms = float(stamps[-1, 5] - started_ns) / 1e6
    call_ns, interval_ns = stamps[:-1, 5] - stamps[:-1, 0], stamps[1:, 0] - stamps[:-1, 0]
    return {
        "parts_ms": parts_ms,
        "whole_ms": session_ms,
        "covered": sum(parts_ms.values()) / session_ms,
        "calls_covered": float(np.median(call_ns / interval_ns)),  # the median ignores single interruptions
        "calls": len(stamps),
    }


def cold_ms(session_time: SessionTime) -> float:
    """Return the time in ms that a process needs before its first answer."""
    return float(sum(session_time["parts_ms"][name] for name in COLD))
