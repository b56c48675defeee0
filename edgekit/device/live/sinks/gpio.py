"""A pin of a Raspberry Pi by gpiozero: active while a rule is on, or for a moment at each event.

With several rules or sources, the pin is active while any of them is on.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from edgekit.device.live.sinks.base import SinkContext, ThreadSink, flag_option, seconds_option
from edgekit.device.live.types import Event
from edgekit.runner.errors import BackendError, InputError

SCHEMES = ("gpio",)
OPTIONS = ("pulse_s", "active_low")


def open(address: str, options: Mapping[str, Any], context: SinkContext) -> Gpio:
    """Return the sink for `gpio:PIN`, where PIN is a number or another name that gpiozero knows, such as BOARD11."""
    pin = address.partition(":")[2]
    where = f"sink {address}"
    if not pin:
        raise InputError("sink gpio: the pin is missing; use gpio:17 for GPIO17")
    pulse_s = seconds_option(options, "pulse_s", 1.0, where) if "pulse_s" in options else None
    return Gpio(pin, pulse_s, flag_option(options, "active_low", where))


class Gpio(ThreadSink):
    """Drives a pin. With `pulse_s`, each event that is not `off` makes it active for this long."""

    def __init__(self, pin: str, pulse_s: float | None = None, active_low: bool = False) -> None:
        super().__init__(f"gpio:{pin}")
        self._pin, self._pulse_s, self._active_low = pin, pulse_s, active_low
        self._on: set[tuple[str, str]] = set()
        self._device: Any = None

    def check(self) -> None:
        """Raise InputError if there is no such pin, and BackendError without a library that reaches the pins."""
        self._open().close()

    def start(self) -> None:
        """Make the pin an output that is not active, and start the thread."""
        self._device = self._open()
        super().start()

    def _open(self) -> Any:
        try:
            import gpiozero
        except ImportError:
            raise BackendError(
                f"sink {self.name}: gpiozero is missing; apt install python3-gpiozero, or pip install gpiozero"
            ) from None
        pin = int(self._pin) if self._pin.isdecimal() else self._pin
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about each library that gpiozero tries in vain
                return gpiozero.DigitalOutputDevice(pin, active_high=not self._active_low)
        except gpiozero.BadPinFactory:
            raise BackendError(
                f"sink {self.name}: no library reaches the pins of this device; apt install python3-lgpio"
            ) from None
        except gpiozero.GPIOZeroError as error:
            raise InputError(f"sink {self.name}: {error}; use another pin, or end what uses it") from None
        except OSError as error:
            raise InputError(f"sink {self.name}: {error.strerror or error}; add this user to the group gpio") from None

    def _deliver(self, event: Event, picture: bytes | None) -> None:
        if self._pulse_s is not None:
            if event.kind != "off":
                self._device.blink(on_time=self._pulse_s, off_time=0, n=1)
            return
        key = event.source, event.rule
        if event.kind == "on":
            self._on.add(key)
        elif event.kind == "off":
            self._on.discard(key)
        self._device.on() if self._on else self._device.off()

    def _end(self) -> None:
        with suppress(Exception):
            self._device.off()
        self._device.close()
