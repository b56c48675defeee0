"""Whether the processor is emulated, in which case timings say nothing about a device."""

from __future__ import annotations

import os

EMULATORS = ("qemu", "rosetta", "box64", "FEX")
PROGRAM = "/proc/thread-self/exe"
"""A link to this process's program. qemu-user shows the emulated program in `/proc/self`, but not at this path."""


def emulator(program: str = PROGRAM) -> str:
    """Return the name of the emulator of this process, such as "qemu-aarch64", or "" on a real processor."""
    try:
        name = os.path.basename(os.readlink(program))
    except OSError:
        return ""
    return name if name.startswith(EMULATORS) else ""
