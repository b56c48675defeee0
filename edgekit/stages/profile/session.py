"""One session end to end: a process is started, opens the network, answers requests one after another.

The parent stamps when it starts the process, when it sends a request and when the answer is there; the process stamps
what it does in between, so that the parts of a call leave no gap. Two things could still be wrong with them: time
between the calls that belongs to none, and what the stamps themselves cost. Both are measured: the share of the session
that the parts cover, and calls that stamp nothing, in turn with calls that do.
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
"""Parts of a session that come once."""
PARTS = ("queue", "preprocess", "execute", "postprocess", "serialise")
"""Parts of each call: until the process takes the request; what the network wants made of a sample; the network; its
scores made an answer; the answer made text, sent and read."""

NAME = "the process that answers requests"
DYING_S = 5.0
ROUNDS = 20
CONFIDENCE = 0.99


def measure(model_folder: Path, samples: np.ndarray, calls: int, warmup_calls: int, timeout_s: float) -> dict[str, Any]:
    """`latency`: percentiles in ms of `total` and each part of a call, with its share of the mean; and `session`.

    `samples` (n, ...) raw, asked for in turn. The first `warmup_calls` answers are in the session and in no percentile.
    After the session as many calls again go without stamps, in rounds with ones that have them: `stamped` is what a
    call with stamps takes of one without, at p50, with its interval. StageError where the process dies or has not ended
    after `timeout_s`, ModelError where the network cannot answer.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-session-") as home:
        path = Path(home) / "samples.npy"
        np.save(path, samples, allow_pickle=False)
        began = time.perf_counter_ns()
        with open(Path(home) / "log", "wb") as log:
            process = subprocesses.start(
                "edgekit.measure.eager_session:answer_requests",
                [str(model_folder), str(path)],
                {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                reads_input=True,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            deadline = time.monotonic() + timeout_s
            watch = threading.Timer(timeout_s, processes.kill_process, [process])  # one that hangs never ends by itself
            watch.start()
            try:
                ready, stamps = _request_all(process, len(samples), warmup_calls + calls)
                stamped = _stamped(process, len(samples), max(1, calls // ROUNDS))
            except (ValueError, OSError):  # it sent nothing, or closed its standard input
                late = time.monotonic() > deadline
                processes.has_ended(process, DYING_S)  # or its exit code would be that of being killed here
                ended = subprocesses.ChildExit(processes.end_process(process), late, Path(log.name))
                kind = ModelError if ended.code == ModelError.exit_code else StageError
                raise kind(f"profile: {_why(ended, timeout_s)}") from None
            finally:
                watch.cancel()
                processes.end_process(process)
                if process.stdout:
                    process.stdout.close()
    found = _session(began, ready, stamps)
    return {"latency": _latency(stamps[warmup_calls:]), "session": {**found, "stamped": stamped}}


def _why(ended: subprocesses.ChildExit, timeout_s: float) -> str:
    if ended.code == ModelError.exit_code:
        return subprocesses.last_useful_line(ended.output)
    if not ended.timed_out:
        return ended.describe(NAME)
    return f"{NAME} had not ended after {timeout_s:g} s; raise profile.timeout_s, or lower profile.latency_calls"


def _request_all(process: subprocess.Popen[bytes], samples: int, calls: int) -> tuple[dict[str, Any], np.ndarray]:
    """What the process said when it was ready; (calls, 6) stamps in ns: sent, its four, and the answer read."""
    assert process.stdout
    ready = json.loads(process.stdout.readline())
    requests = [b"%d\n" % (number % samples) for number in range(calls)]
    found = [_request(process, request) for request in requests]  # between two calls there is nothing else
    return ready, np.array([(sent, *answer["stamps"], read) for sent, answer, read in found], dtype=np.int64)


def _stamped(process: subprocess.Popen[bytes], samples: int, calls: int) -> StampOverhead:
    """Calls with stamps against calls without, in rounds of so many, which of them first in turn."""
    took_ms: dict[str, list[float]] = {"\n": [], BARE: []}
    for number in range(ROUNDS):
        for end in sorted(took_ms, reverse=bool(number % 2)):
            for call in range(calls):
                sent, _, read = _request(process, f"{(number * calls + call) % samples}{end}".encode())
                took_ms[end].append((read - sent) / 1e6)
    with_them, without = (np.array(took_ms[end]) for end in ("\n", BARE))
    return cast("StampOverhead", asdict(intervals.ratio_interval(with_them, without, ROUNDS, CONFIDENCE)))


def _request(process: subprocess.Popen[bytes], request: bytes) -> tuple[int, dict[str, Any], int]:
    """When it was sent, the answer, and when that had been read; ns."""
    assert process.stdin and process.stdout
    sent = time.perf_counter_ns()
    process.stdin.write(request)
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    return sent, answer, time.perf_counter_ns()


def _latency(stamps: np.ndarray) -> dict[str, dict[str, float]]:
    parts_ms = np.diff(stamps, axis=1).T / 1e6
    total_ms = (stamps[:, 5] - stamps[:, 0]) / 1e6
    found = {"total": {**latency_summary(total_ms), "share": 1.0}}
    for name, part_ms in zip(PARTS, parts_ms, strict=True):
        found[name] = {**latency_summary(part_ms), "share": float(part_ms.mean() / total_ms.mean())}
    return found


def _session(began: int, ready: Mapping[str, int], stamps: np.ndarray) -> SessionTime:
    """Milliseconds of every part over the whole session, the session, and the share of it that the parts cover.

    `calls_covered` is that share from one call's beginning to the next, of the middle call.
    """
    once = np.diff([began, ready["began"], ready["imported"], ready["loaded"], ready["warm"]]) / 1e6
    calls = np.diff(stamps, axis=1).sum(axis=0) / 1e6
    parts_ms = {name: float(value) for name, value in zip((*COLD, *PARTS), (*once, *calls), strict=True)}
    whole_ms = float(stamps[-1, 5] - began) / 1e6
    call_ns, until_next = stamps[:-1, 5] - stamps[:-1, 0], stamps[1:, 0] - stamps[:-1, 0]
    return {
        "parts_ms": parts_ms,
        "whole_ms": whole_ms,
        "covered": sum(parts_ms.values()) / whole_ms,
        "calls_covered": float(np.median(call_ns / until_next)),  # no interruption between two calls decides
        "calls": len(stamps),
    }


def cold_ms(session: SessionTime) -> float:
    """What a process costs before its first answer."""
    return float(sum(session["parts_ms"][name] for name in COLD))
