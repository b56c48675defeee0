"""The file of a power meter, which another process rewrites while it is read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgekit.measure.energy import EnergyUnavailable, MeterUnit, PowerMeter

WRITER = """
import sys, time
path, watts, joules = sys.argv[1], float(sys.argv[2]), sys.argv[3] == "joules"
began = time.perf_counter()
while True:
    value = watts * (time.perf_counter() - began) if joules else watts
    with open(path, "w") as file:  # in place: a reader may see it empty
        file.write(f"{value}\\n")
    time.sleep(0.002)
"""


@contextmanager
def rewritten(path: Path, watts: float, unit: MeterUnit) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(watts), unit])
    try:
        while not path.is_file() or not path.read_text():
            time.sleep(0.005)
        yield
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that stays unreadable is given up after a twentieth of a second."""
    monkeypatch.setattr(sys.modules[PowerMeter.__module__], "METER_TIMEOUT_S", 0.05)


@pytest.mark.parametrize("unit", ["watts", "joules"])
def test_energy_is_power_by_time_while_the_file_is_rewritten(unit: MeterUnit, tmp_path: Path) -> None:
    path = tmp_path / "meter"
    with rewritten(path, 20.0, unit):
        spent = PowerMeter(path, unit).measure(lambda: time.sleep(0.4))
    assert spent.seconds >= 0.4
    assert spent.joules == pytest.approx(20.0 * spent.seconds, rel=0.25)


def test_watts_that_change_are_summed_over_their_time(tmp_path: Path) -> None:
    path = tmp_path / "meter"
    path.write_text("10")

    def work() -> None:
        time.sleep(0.3)
        path.write_text("30")
        time.sleep(0.3)

    spent = PowerMeter(path, "watts").measure(work)
    assert 12 * spent.seconds < spent.joules < 28 * spent.seconds


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains '' instead of a number of watts"),
        ("12 W", "contains '12 W' instead of a number of watts"),
        ("nan", "contains 'nan'; the number of watts must be 0 or more"),
        ("-3", "contains '-3'; the number of watts must be 0 or more"),
    ],
)
def test_what_is_no_number_is_shown(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "meter"
    path.write_text(text)
    with pytest.raises(EnergyUnavailable, match=words):
        PowerMeter(path, "watts").read()


@pytest.mark.usefixtures("impatient")
def test_a_file_that_is_not_there_or_goes_is_named(tmp_path: Path) -> None:
    path = tmp_path / "meter"
    with pytest.raises(EnergyUnavailable, match="cannot be read \\(No such file"):
        PowerMeter(path, "joules").read()
    path.write_text("5")
    with pytest.raises(EnergyUnavailable, match="cannot be read \\(No such file"):
        PowerMeter(path, "watts").measure(path.unlink)


def test_a_counter_that_stands_still_or_goes_back_gives_no_figure(tmp_path: Path) -> None:
    path = tmp_path / "meter"
    path.write_text("5")
    with pytest.raises(EnergyUnavailable, match=r"stayed at 5 joules .* raise benchmark\.cost\.energy_s"):
        PowerMeter(path, "joules").measure(lambda: None)
    with pytest.raises(EnergyUnavailable, match="went back from 5 to 4 joules"):
        PowerMeter(path, "joules").measure(lambda: path.write_text("4"))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("unit", ["watts", "joules"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"1" * 100_000, None])
def test_a_meter_without_a_number_is_reported(unit: MeterUnit, content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "meter"
    path.write_text("10")

    def work() -> None:
        path.unlink()
        if content is None:
            os.mkfifo(path)  # nobody writes into it
        else:
            path.write_bytes(content)
        time.sleep(0.1)

    with pytest.raises(EnergyUnavailable, match="meter "):
        PowerMeter(path, unit).measure(work)
