"""The check of memory finds what grows, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from tests.serve.memory import Watch, growth_kb

GROWS = """
import sys, time
kept = []
print("begins", flush=True)
while True:
    buffer = bytes([len(kept) % 250 + 1]) * 4096
    if sys.argv[1] == "keeps":
        kept.append(buffer)
    time.sleep(0.002)
"""


def series(trend_kb: float, count: int = 120, noise_kb: float = 300.0) -> list[tuple[float, int]]:
    """Samples that rise by `trend_kb` in all, among noise as buffers make it."""
    noise = np.random.default_rng(5).exponential(noise_kb, count)
    return [(0.5 * number, int(50_000 + trend_kb * number / count + noise[number])) for number in range(count)]


@pytest.mark.parametrize("trend_kb", [0.0, 1000.0, 5000.0])
def test_a_trend_is_found_among_noise(trend_kb: float) -> None:
    assert growth_kb(series(trend_kb)) == pytest.approx(trend_kb, abs=250)


def test_a_step_that_happens_once_is_no_trend() -> None:
    early = [(when, kb + 2000 * (place > 10)) for place, (when, kb) in enumerate(series(0.0))]
    assert growth_kb(early) < 2000 / 4


def test_steps_that_come_again_and_again_are_a_trend() -> None:
    steps = [(when, kb + 1000 * (place // 24)) for place, (when, kb) in enumerate(series(0.0))]
    assert growth_kb(steps) > 3500


@pytest.mark.processes
def test_a_process_that_keeps_what_it_should_not_is_found() -> None:
    """At some two megabytes a second, beside one that lets go."""
    found = {}
    processes = {
        word: subprocess.Popen([sys.executable, "-c", GROWS, word], stdout=subprocess.PIPE)
        for word in ("keeps", "lets go")
    }
    try:
        for process in processes.values():
            assert process.stdout
            process.stdout.readline()
        watch = Watch([process.pid for process in processes.values()], 0.1)
        watch.start()
        time.sleep(5)
        growth = watch.end()
        found = {word: growth[process.pid] for word, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    assert found["keeps"] > 1024
    assert abs(found["lets go"]) < 128
