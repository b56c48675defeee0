"""The systems that these tests drive, opened in the child: callables with a known service time and known faults."""

from __future__ import annotations

import os
import signal
import time
from itertools import count

from edgekit.measure.load.loadgen_run import Subject


def sleeping(seconds: float) -> Subject:
    """Takes `seconds`, and a tenth of a millisecond or so for waking up."""
    return Subject(lambda _: time.sleep(seconds), range(8))


def failing(every: int, seconds: float = 0.001) -> Subject:
    """Raises at each call whose number divides by `every`."""
    number = count()

    def predict(sample: int) -> int:
        time.sleep(seconds)
        if next(number) % every == 0:
            raise ValueError("the sensor\nwas gone")
        return sample

    return Subject(predict, range(8))


def killed(after: int) -> Subject:
    """Dies by SIGKILL at a call."""
    number = count()

    def predict(_: int) -> None:
        time.sleep(0.001)
        if next(number) == after:
            os.kill(os.getpid(), signal.SIGKILL)

    return Subject(predict, range(8))


def minimums(scenario: str) -> Subject:
    """Raises what the mlperf.conf inside LoadGen asks for in a scenario, of the benchmark that edge devices run."""
    import tempfile

    import mlperf_loadgen as loadgen

    name = "".join(part.capitalize() for part in scenario.split("_"))
    settings = loadgen.TestSettings()
    settings.scenario = getattr(loadgen.TestScenario, name)
    with tempfile.NamedTemporaryFile(suffix=".conf") as empty:
        assert settings.FromConfig(empty.name, "resnet50", name) == 0
    raise ValueError(f"LoadGen asks for {settings.min_duration_ms / 1000:g} {settings.min_query_count}")
