"""The runner everywhere: Python 3.9 to 3.14, numpy 1.26 and 2, every interpreter, wherever there are wheels for it.

Each combination is an environment with numpy, one interpreter and nothing else. `selftest`, `predict` and `bench` of
edgerun.pyz run in it on a digits bundle, and `selftest` on a network in int8 or another format; no wheels
is the only excuse, and only for the combinations that are known to have none.
"""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import requirements
from tests.runner import same_bits
from tests.runner.test_same_bits import EXPECTED

from . import bundles, pythons
from .bundles import Known
from .conftest import TABLE
from .environments import COMBINATIONS, Combination, Environment, NoWheels, create_environment, may_lack_wheels

pytestmark = [pytest.mark.matrix, pytest.mark.slow]

DISTRIBUTIONS = {"litert": "ai-edge-litert", "tflite_runtime": "tflite-runtime"}
FOREIGN = {"edgekit", "edgekit-workbook", "torch", "pydantic", "scikit-learn", "onnx", *DISTRIBUTIONS.values()}
FOREIGN |= {"tensorflow", "openvino", "onnxruntime"}
TFLITE_MISSING = ("openvino", "pip install openvino")
MISSING = {
    "openvino": ("tflite", "pip install ai-edge-litert"),
    "onnxruntime": ("tflite", "pip install ai-edge-litert"),
}
BACKEND = 5


@dataclass(frozen=True)
class Runner:
    """edgerun.pyz in one environment, with one interpreter on one thread."""

    file: Path
    environment: Environment
    interpreter: str

    def try_(self, *arguments: object, pinned: bool = True) -> subprocess.CompletedProcess[str]:
        """The finished command; left to itself, the runner chooses its interpreter and threads by a trial."""
        chosen = ("--interpreter", self.interpreter, "--threads", 1, "--no-trial") if pinned else ()
        return self.environment.run(self.file, *arguments, *chosen)

    def run_json(self, *arguments: object, pinned: bool = True) -> dict[str, Any]:
        """The JSON of a command that must succeed."""
        done = self.try_(*arguments, "--json", pinned=pinned)
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    @property
    def is_slow(self) -> bool:
        """Whether the runner is not left to itself, as a stranger would leave it: it imports what it tries, twice."""
        return self.interpreter == "tensorflow"

    @property
    def version(self) -> str:
        return self.environment.held[DISTRIBUTIONS.get(self.interpreter, self.interpreter)]


def test_enough_pythons_are_here() -> None:
    here = pythons.available()
    enough = f"{pythons.FEWEST} versions of Python, on the PATH or from pyenv"
    requirements.condition(len(here) >= pythons.FEWEST, enough, why=f"there is {', '.join(here) or 'none'}")


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_it_runs(
    combination: Combination, runner: Path, digits: dict[str, Known], integer: Known, tmp_path: Path
) -> None:
    base = requirements.python(combination.python)
    name = combination.interpreter
    try:
        with create_environment(combination, base, tmp_path / "made") as environment:
            here = Runner(runner, environment, name)
            holds_nothing_else(combination, here)
            has_the_same_bits(here)
            cells = refuses(here, digits, integer) if combination.is_broken else answers(here, digits, integer)
            versions = (environment.held["numpy"], f"{name} {here.version}")
    except NoWheels as reason:
        assert may_lack_wheels(combination), f"{combination} had wheels once, now: {reason}"
        cells, versions = (f"no wheels: {reason}",), (combination.numpy, name)
    TABLE.rows.append((combination.python, *versions, *cells))


def holds_nothing_else(combination: Combination, here: Runner) -> None:
    held = here.environment.held
    assert held["numpy"].startswith(f"{combination.numpy}.")
    assert [name for name in held if name in FOREIGN] == [DISTRIBUTIONS.get(here.interpreter, here.interpreter)]


def has_the_same_bits(here: Runner) -> None:
    """Also where the interpreter is broken: the arithmetic is numpy's."""
    done = here.environment.run(same_bits.__file__, here.file)
    assert done.returncode == 0, done.stderr
    has_pillow = "pillow" in here.environment.held
    assert same_bits.differences(json.loads(done.stdout), EXPECTED, has_pillow) == []


def answers(here: Runner, digits: dict[str, Known], integer: Known) -> tuple[str, ...]:
    """Selftests, predict and bench, as cells of the table; what is timed has the machine to itself."""
    cases = bundles.cases(here.interpreter, digits, integer)
    case, *others = cases.values()
    with ThreadPoolExecutor(max_workers=2) as pool:  # importing tensorflow takes seconds, each time
        jobs = [pool.submit(selftest, here, case), pool.submit(predict, here, case)]
        jobs += [pool.submit(selftest, here, other) for other in others]
        jobs += [pool.submit(names_what_is_missing, here, digits)]
        passed, label, *rest, missing = [job.result() for job in jobs]
    figures = here.run_json("bench", case.path, "--calls", 200, "--warmup", 5)
    assert figures["interpreter"] == here.interpreter
    assert figures["execute"]["p50_ms"] > 0 and figures["predict"]["p50_ms"] > 0
    also = [f"{name} {found}" for name, found in zip(list(cases)[1:], rest)] or ["–"]
    return (passed, *also, label, f"{figures['execute']['p50_ms']:.4f}", missing)


def predict(here: Runner, case: Known) -> str:
    answer = here.run_json("predict", case.path, case.samples[case.clearest], pinned=here.is_slow)
    assert answer["label"] == case.labels[case.clearest]
    np.testing.assert_allclose(answer["scores"], case.scores[case.clearest], rtol=0, atol=case.atol)
    return f"{answer['label']} ✓"


def selftest(here: Runner, case: Known) -> str:
    report = here.run_json("selftest", case.path, pinned=here.is_slow)
    assert report["ok"] and (report["interpreter"], report["version"]) == (here.interpreter, here.version)
    assert report["vectors"] == len(case.samples) and report["max_abs_delta"] <= report["atol"] == case.atol
    return f"passed, Δ {report['max_abs_delta']:.1e} of {report['atol']:.1e}"


def refuses(here: Runner, digits: dict[str, Known], integer: Known) -> tuple[str, ...]:
    """What cannot work says so, with the fix, instead of dying inside the interpreter."""
    for case in (digits["tflite"], integer):
        for pinned in (True, False):
            done = here.try_("selftest", case.path, pinned=pinned)
            assert is_clear(done) and "numpy<2" in done.stderr, done.stdout + done.stderr
    return (f"refused, exit {BACKEND}: {' '.join(done.stderr.split())}",)


def names_what_is_missing(here: Runner, digits: dict[str, Known]) -> str:
    """For a target that this interpreter does not run: the pip line of one that does."""
    target, line = MISSING.get(here.interpreter, TFLITE_MISSING)
    done = here.try_("selftest", digits[target].path, pinned=False)
    assert is_clear(done) and line in done.stderr, done.stdout + done.stderr
    return f"{target}: {line}"


def is_clear(done: subprocess.CompletedProcess[str]) -> bool:
    """An error for its reader: the exit code of an interpreter that cannot be had, and no traceback."""
    return done.returncode == BACKEND and "Traceback" not in done.stderr
