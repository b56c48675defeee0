"""Pins by gpiozero, with its own mock of the pins of a Raspberry Pi."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device.live.sinks import open_sink
from edgekit.runner.errors import BackendError, InputError
from tests import requirements
from tests.device.live.sinks.broker import context, event, until
from tests.device.live.sinks.test_mqtt import started


@pytest.fixture
def pins() -> Iterator[object]:
    gpiozero = requirements.package("gpiozero")
    mock = requirements.package("gpiozero.pins.mock").MockFactory()
    before, gpiozero.Device.pin_factory = gpiozero.Device.pin_factory, mock
    yield mock
    mock.reset()
    gpiozero.Device.pin_factory = before


def test_active_while_a_rule_is_on(tmp_path: Path, pins: object) -> None:
    pin = pins.pin(17)  # type: ignore[attr-defined]
    sink = open_sink({"to": "gpio:17", "rules": ["visitor"]}, context(tmp_path))
    sink.check()
    with started(sink):
        assert pin.function == "output" and not pin.state
        for number, (kind, rule, active) in enumerate(
            [("on", "visitor", True), ("off", "passed", True), ("on", "visitor", True), ("off", "visitor", False)]
        ):
            sink.send(event(number, kind, rule))
            until(lambda: not sink.status().waiting)
            assert pin.state == active
        sink.send(event(9, "on"))
        until(lambda: pin.state)
    assert pin.function == "input" and sink.status().sent == 4, "the pin is let go"


def test_several_rules_share_a_pin(tmp_path: Path, pins: object) -> None:
    pin = pins.pin(4)  # type: ignore[attr-defined]
    with started(open_sink({"to": "gpio:4", "active_low": True}, context(tmp_path))) as sink:
        assert pin.state, "low is active"
        for kind, rule, level in (("on", "a", 0), ("on", "b", 0), ("off", "a", 0), ("count", "c", 0), ("off", "b", 1)):
            sink.send(event(1, kind, rule))
            until(lambda: not sink.status().waiting)
            assert pin.state == level


def test_a_pulse_for_each_event(tmp_path: Path, pins: object) -> None:
    pin = pins.pin(17)  # type: ignore[attr-defined]
    with started(open_sink({"to": "gpio:17", "pulse_s": 0.15}, context(tmp_path))) as sink:
        sink.send(event(1, "off"))
        until(lambda: sink.status().sent == 1)
        assert not pin.state
        for kind in ("on", "count"):
            sink.send(event(2, kind))
            until(lambda: pin.state)
            begun = time.monotonic()
            until(lambda: not pin.state)
            assert time.monotonic() - begun < 5


def test_pins_that_cannot_be_used(tmp_path: Path, pins: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="sink gpio:99: .*; use another pin"):
        open_sink("gpio:99", context(tmp_path)).check()
    with (
        started(open_sink("gpio:17", context(tmp_path))),
        pytest.raises(InputError, match="already in use"),
    ):
        open_sink("gpio:17", context(tmp_path)).check()
    with pytest.raises(InputError, match="the pin is missing; use gpio:17"):
        open_sink("gpio:", context(tmp_path))
    monkeypatch.setitem(sys.modules, "gpiozero", None)
    with pytest.raises(BackendError, match="gpiozero is missing; apt install python3-gpiozero"):
        open_sink("gpio:17", context(tmp_path)).check()


def test_a_device_without_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpiozero = requirements.package("gpiozero")
    requirements.condition(not list(Path("/dev").glob("gpio*")), "a machine without pins")
    monkeypatch.setattr(gpiozero.Device, "pin_factory", None)
    with pytest.raises(BackendError, match="no library reaches the pins of this device; apt install python3-lgpio"):
        open_sink("gpio:17", context(tmp_path)).check()
