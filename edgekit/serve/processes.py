"""What a process has used: its CPU and its resident memory, as Linux shows them in /proc."""

from __future__ import annotations

import os
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
USER, SYSTEM, RESIDENT = 11, 12, 21
"""Places behind the name in /proc/PID/stat: its ticks in user and in kernel mode, its resident pages."""


class Used(NamedTuple):
    """Since the process began: seconds of CPU; now: resident bytes."""

    cpu_s: float
    resident_bytes: int


def read(pid: int) -> Used | None:
    """None where there is no such process any more."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            words = stream.read().rpartition(b")")[2].split()  # a name may hold blanks and brackets
        ticks = int(words[USER]) + int(words[SYSTEM])
        return Used(ticks / TICKS_PER_S, int(words[RESIDENT]) * PAGE_BYTES)
    except (OSError, ValueError, IndexError):
        return None
