"""The monitor itself, through its public interface, asked for its verdict every STEP samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.drift.detectors import Alarm
from benchmarks.drift.pools import Stream
from benchmarks.drift.subjects import Subject
from edgekit.device.monitor import inputs, outputs, reference
from edgekit.device.monitor.monitor import Monitor
from edgekit.runner.bundle.manifest import Manifest

CHUNK = 256
ALARMING = ("doubtful", "wrong")


def measure(manifest: Manifest) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The function from raw samples and outputs to the monitor's statistics, float32 (n, k), for the peers."""
    of_raw, of_output = inputs.maker(manifest.raw), outputs.maker(manifest)

    def table(raws: np.ndarray, given: np.ndarray) -> np.ndarray:
        starts = range(0, len(raws), CHUNK)
        mine = np.concatenate([of_raw(raws[start : start + CHUNK]) for start in starts])
        return np.concatenate([mine, of_output(raws, given, ()).values], axis=1).astype(np.float32)

    return table


def names(manifest: Manifest) -> list[str]:
    """Of those statistics."""
    return reference.names(manifest)


def validation(subject: Subject, seed: int) -> np.ndarray:
    """Places of the samples that a reference is made of, drawn like those of a stream."""
    return np.random.default_rng((seed, 6)).integers(0, len(subject.raws), subject.references)


def recorded(subject: Subject, seed: int) -> dict[str, Any]:
    """The reference that a bundle would carry, of other validation samples for each seed."""
    places = validation(subject, seed)
    return reference.record(subject.manifest, subject.raws[places], subject.outputs[places])


def watcher(manifest: Manifest, known: dict[str, Any]) -> Callable[[Stream], list[Alarm]]:
    """Alarms of a stream; behind a false one a new monitor begins."""

    def alarms(stream: Stream) -> list[Alarm]:
        monitor, found = Monitor(manifest, known, every_s=0.0), []
        for at, raws, given in stream.parts():
            monitor.observe(raws, given)
            verdict = monitor.verdict()
            if verdict.level in ALARMING:
                found.append(Alarm(at, finding(verdict)))
                if at > stream.onset:
                    break
                monitor = Monitor(manifest, known, every_s=0.0)
        return found

    return alarms


def finding(verdict: Any) -> str:
    """The statistic with the most evidence among those that alarm."""
    alarming = [each for each in verdict.findings if each.alarm]
    return max(alarming, key=lambda each: float(each.evidence)).statistic if alarming else str(verdict.reason)
