"""Figures of the process and of the machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from edgekit.device.hardware import health
from edgekit.device.monitor import exposition, machine
from edgekit.device.monitor.machine import MachineMetrics
from tests.device.hardware.test_health import pi
from tests.device.monitor.scraped import names, value


def test_a_raspberry_pi_shows_its_heat_and_its_supply(tmp_path: Path) -> None:
    page = exposition.render(MachineMetrics(pi(tmp_path, throttled="50005")).figures())
    assert value(page, "edgekit_temperature_celsius") == 61.85
    assert value(page, "edgekit_clock_hertz") == 1.5e9
    assert value(page, "edgekit_throttled") == value(page, "edgekit_under_voltage") == 1
    assert value(page, "edgekit_process_resident_bytes", process="edgerun") > 1_000_000


def test_what_the_kernel_does_not_show_is_absent(tmp_path: Path) -> None:
    assert names(exposition.render(MachineMetrics(tmp_path).figures())) == {"edgekit_process_cpu_seconds_total"}


def test_the_processors_time_is_that_of_this_process() -> None:
    here = MachineMetrics()
    before = value(exposition.render(here.figures()), "edgekit_process_cpu_seconds_total", process="edgerun")
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    after = value(exposition.render(here.figures()), "edgekit_process_cpu_seconds_total")
    assert after - before >= 0.05


def test_the_machine_is_not_read_again_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = MachineMetrics(pi(tmp_path))
    here.figures()
    (tmp_path / health.FIRMWARE).write_text("4\n")
    assert value(exposition.render(here.figures()), "edgekit_throttled") == 0
    monkeypatch.setattr(machine, "MAX_AGE_S", 0.0)
    assert value(exposition.render(here.figures()), "edgekit_throttled") == 1
