"""Whether the processor is emulated, in which case timings say nothing about a device."""

from __future__ import annotations

import os

EMULATORS = ("qemu", "rosetta", "box64", "FEX")
PROGRAM = "/proc/thread-self/exe"
"""qemu-user fakes `/proc/self` for the emulated processor (down to a Cortex-A72), but not this path."""


def emulator(program: str = PROGRAM) -> str:
    """Return the name of the emulator of this process, such as "qemu-aarch64", or "" on a real processor."""
    try:
        name = os.path.basename(os.readlink(program))
    except OSError:
        return ""
    return name if name.startswith(EMULATORS) else ""
