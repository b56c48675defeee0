"""Whether another processor is only being played: what it takes to answer then says nothing about a device."""

from __future__ import annotations

import os

EMULATORS = ("qemu", "rosetta", "box64", "FEX")
PROGRAM = "/proc/thread-self/exe"
"""qemu-user answers for `/proc/self` as the played processor would (down to a Cortex-A72), but not for this one."""


def emulator(program: str = PROGRAM) -> str:
    """Name of the program that plays this process's processor, such as "qemu-aarch64"; empty on a real one."""
    try:
        name = os.path.basename(os.readlink(program))
    except OSError:
        return ""
    return name if name.startswith(EMULATORS) else ""
