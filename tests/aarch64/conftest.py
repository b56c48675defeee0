"""The suite's needs: qemu, a fetched device, bundles, and the table it leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import requirements
from tests.matrix.conftest import bundles, digits, integer, models, runner  # noqa: F401  (fixtures)
from tests.matrix.report import Table

from .device import PROCESSORS, Device, prefix, python
from .fetch import WHEELS, emulator, is_fetched

COLUMNS = ("processor", "interpreter", "numpy", "bundle", "selftest", "against x86-64")
TABLE = Table(
    "aarch64.md", COLUMNS, "aarch64 by qemu-user; Δ is the distance from the golden and from x86-64's scores."
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was found."""
    TABLE.publish(terminalreporter)


@pytest.fixture(scope="session")
def fetched() -> None:
    """qemu and build/aarch64."""
    requirements.condition(emulator() is not None, "qemu-aarch64", install="apt-get install qemu-user")
    requirements.condition(is_fetched(), "build/aarch64", install="make aarch64")


@pytest.fixture(scope="module", params=PROCESSORS)
def processor(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module", params=WHEELS)
def interpreter(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def device(fetched: None, processor: str, interpreter: str, tmp_path_factory: pytest.TempPathFactory) -> Device:
    """A processor with one interpreter."""
    folder: Path = tmp_path_factory.mktemp(processor)
    (folder / "cache").mkdir()
    started = python(processor, prefix(processor, folder / "prefix"))
    return Device(processor, interpreter, started, folder / "cache")
