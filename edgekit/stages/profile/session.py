"""One session end to end: a process is started, opens the network, answers requests one after another.

The parent stamps when it starts the process, when it sends a request and when the answer is there; the process stamps
what it does in between. The parts are measured one by one, and the whole on its own: what no part covers shows.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from edgekit import child
from edgekit.errors import StageError
from edgekit.runner.bench import summary

COLD = ("start Python", "import", "load", "warm-up")
"""Parts of a session that come once."""
PARTS = ("queue", "preprocess", "execute", "postprocess", "serialise")
"""Parts of each call: until the process takes the request; what the network wants made of a sample; the network; its
scores made an answer; the answer made text, sent and read."""

Row = dict[str, Any]


def measure(model_folder: Path, samples: np.ndarray, calls: int, warmup_calls: int, timeout_s: float) -> Row:
    """`latency`: percentiles in ms of `total` and each part of a call, with its share of the mean; and `session`.

    `samples` (n, ...) raw, asked for in turn. The first `warmup_calls` answers are in the session and in no percentile.
    StageError where the process dies or has not ended after `timeout_s`.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-session-") as home:
        path = Path(home) / "samples.npy"
        np.save(path, samples, allow_pickle=False)
        began = time.perf_counter_ns()
        with open(Path(home) / "log", "w+") as log:
            process = child.start(
                "edgekit.eager_session",
                [str(model_folder), str(path)],
                {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
                stdout=subprocess.PIPE,
                stderr=log,
            )
            deadline = time.monotonic() + timeout_s
            watch = threading.Timer(timeout_s, process.kill)  # one that hangs answers nothing, and never ends by itself
            watch.start()
            try:
                ready, stamps = _ask(process, len(samples), warmup_calls + calls)
            except (ValueError, OSError):  # it said nothing, or closed its ears
                log.seek(0)
                raise StageError(f"profile: {_why(log.read(), time.monotonic() > deadline, timeout_s)}") from None
            finally:
                watch.cancel()
                child.end(process)
                if process.stdout:
                    process.stdout.close()
    return {"latency": _latency(stamps[warmup_calls:]), "session": _session(began, ready, stamps)}


def _why(log: str, late: bool, timeout_s: float) -> str:
    if late:
        return (
            f"the process that answers requests had not ended after {timeout_s:g} s; raise profile.timeout_s, or lower "
            "profile.latency_calls"
        )
    return f"the process that answers requests died: {child.last_useful_line(log)}"


def _ask(process: subprocess.Popen[bytes], samples: int, calls: int) -> tuple[Row, np.ndarray]:
    """What the process said when it was ready; (calls, 6) stamps in ns: sent, its four, and the answer read."""
    asked, answers = process.stdin, process.stdout
    assert asked and answers
    ready = json.loads(answers.readline())
    stamps = np.empty((calls, 6), dtype=np.int64)
    for number, row in enumerate(stamps):
        row[0] = time.perf_counter_ns()
        asked.write(b"%d\n" % (number % samples))
        asked.flush()
        answer = json.loads(answers.readline())
        row[5] = time.perf_counter_ns()
        row[1:5] = answer["stamps"]
    return ready, stamps


def _latency(stamps: np.ndarray) -> dict[str, dict[str, float]]:
    parts_ms = np.diff(stamps, axis=1).T / 1e6
    total_ms = (stamps[:, 5] - stamps[:, 0]) / 1e6
    found = {"total": {**summary(total_ms), "share": 1.0}}
    for name, part_ms in zip(PARTS, parts_ms, strict=True):
        found[name] = {**summary(part_ms), "share": float(part_ms.mean() / total_ms.mean())}
    return found


def _session(began: int, ready: Row, stamps: np.ndarray) -> Row:
    """Milliseconds of every part over the whole session, the session, and the share of it that the parts cover."""
    once = np.diff([began, ready["began"], ready["imported"], ready["loaded"], ready["warm"]]) / 1e6
    calls = np.diff(stamps, axis=1).sum(axis=0) / 1e6
    parts_ms = {name: float(value) for name, value in zip((*COLD, *PARTS), (*once, *calls), strict=True)}
    whole_ms = float(stamps[-1, 5] - began) / 1e6
    covered = sum(parts_ms.values()) / whole_ms
    return {"parts_ms": parts_ms, "whole_ms": whole_ms, "covered": covered, "calls": len(stamps)}


def cold_ms(session: Row) -> float:
    """What a process costs before its first answer."""
    return float(sum(session["parts_ms"][name] for name in COLD))
