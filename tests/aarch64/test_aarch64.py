"""The real aarch64 Python and wheels give the answers that x86-64 gives.

Every interpreter runs on two processors, without and with the int8 dot product. Held against it are the golden
vectors, and the scores of the same version of the same interpreter on this machine, in an environment of its own.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import requirements
from tests.matrix import bundles, pythons
from tests.matrix.bundles import Known
from tests.matrix.environments import Environment, installed

from .conftest import TABLE
from .device import Device
from .fetch import DEVICE, PYTHON, WHEELS

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]

ELF, AARCH64 = b"\x7fELF", 183
MACHINE_AT = slice(18, 20)
CALLS = ("--calls", 20, "--warmup", 2)


@pytest.fixture(scope="module")
def scores(
    interpreter: str,
    cases: Mapping[str, Known],
    runner: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, np.ndarray]:
    """The scores of every golden sample on this machine."""
    on_x86 = platform.machine() in ("x86_64", "AMD64")
    requirements.condition(on_x86, "an x86-64 processor", why="the comparison is with it", required_in_ci=False)
    base = pythons.available().get(PYTHON)
    assert base is not None, f"no Python {PYTHON} on the PATH or with pyenv"
    with installed(WHEELS[interpreter], base, tmp_path_factory.mktemp("x86") / "made") as here:
        return {name: predicted(here, runner, case, interpreter)[0] for name, case in cases.items()}


@pytest.fixture(scope="module")
def cases(interpreter: str, digits: dict[str, Known], integer: Known) -> dict[str, Known]:
    """What an interpreter runs."""
    return bundles.cases(interpreter, digits, integer)


def predicted(here: Environment | Device, runner: Path, case: Known, interpreter: str) -> tuple[np.ndarray, list[str]]:
    """Scores (n, classes) and labels of a bundle's golden samples."""
    options = ("--interpreter", interpreter, "--threads", 1, "--json")
    done = here.run(runner, "predict", case.path, *case.samples, *options, "--no-trial")
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return np.array([answer["scores"] for answer in found]), [answer["label"] for answer in found]


def run_json(device: Device, runner: Path, *arguments: object) -> dict[str, Any]:
    """The JSON of a command that must succeed."""
    done = device.run(runner, *arguments, "--interpreter", device.interpreter, "--threads", 1, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_an_aarch64(device: Device) -> None:
    code = (
        "import numpy, platform; print(platform.machine(), platform.libc_ver()[0], numpy.__version__, numpy.__file__)"
    )
    done = device.run("-c", code)
    assert done.returncode == 0, done.stderr
    machine, libc, version, file = done.stdout.split()
    assert (machine, libc, f"numpy=={version}") == ("aarch64", "glibc", WHEELS[device.interpreter][0])
    assert Path(file).is_relative_to(DEVICE / "site" / device.interpreter)


def test_its_python_can_start_itself(device: Device) -> None:
    code = "import platform; print(platform.machine())"
    again = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {code!r}]).returncode)"
    done = device.run("-c", again)
    assert (done.returncode, done.stdout.split()) == (0, ["aarch64"]), done.stderr


def test_every_library_is_built_for_aarch64(fetched: None, interpreter: str) -> None:
    libraries = list(binaries(DEVICE / "site" / interpreter))
    assert len(libraries) > 10
    assert {machine for _, machine in libraries} == {AARCH64}


def binaries(folder: Path) -> Iterator[tuple[Path, int]]:
    """The ELF files below a folder, with the machine each is built for."""
    for path in folder.rglob("*.so*"):
        with path.open("rb") as file:
            head = file.read(MACHINE_AT.stop)
        if head.startswith(ELF):
            yield path, int.from_bytes(head[MACHINE_AT], "little")


def test_its_answers_are_those_of_x86(
    device: Device, cases: dict[str, Known], scores: dict[str, np.ndarray], runner: Path
) -> None:
    for name, case in cases.items():
        report = run_json(device, runner, "selftest", case.path)
        assert report["ok"] and report["interpreter"] == device.interpreter
        assert f"=={report['version']}" in WHEELS[device.interpreter][1]
        assert report["vectors"] == len(case.samples) and report["max_abs_delta"] <= report["atol"] == case.atol
        found, labels = predicted(device, runner, case, device.interpreter)
        assert labels[case.clearest] == case.labels[case.clearest]
        apart = float(np.abs(found - scores[name]).max())
        assert apart <= case.atol
        passed = f"passed, Δ {report['max_abs_delta']:.1e} of {case.atol:.1e}"
        numpy, wheel, *_ = WHEELS[device.interpreter]
        TABLE.rows.append((device.processor, wheel, numpy.split("==")[1], name, passed, f"Δ {apart:.1e}"))


def test_bench_runs_and_says_where(device: Device, cases: dict[str, Known], runner: Path) -> None:
    figures = run_json(device, runner, "bench", cases["digits"].path, *CALLS, "--no-trial")
    assert figures["interpreter"] == device.interpreter and figures["execute"]["p50_ms"] > 0
    assert figures["machine"]["python"].startswith(f"{PYTHON}.")
