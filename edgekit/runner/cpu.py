"""Facts about the processor, as the kernel reports them."""

from __future__ import annotations

import os
import sys

X86 = (
    "sse4_1", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
ARM = ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2")
"""Instruction sets for which interpreters have different code. They affect the speed, and the last bits of a sum."""


ARCHITECTURE_ALIASES = {"arm64": "aarch64", "amd64": "x86_64", "armv8l": "armv7l"}


def architecture() -> str:
    """Return the architecture by Linux's name for it: x86_64, aarch64, armv7l."""
    if sys.platform == "win32":
        reported = os.environ.get("PROCESSOR_ARCHITECTURE", "")
    else:
        reported = os.uname().machine
    return ARCHITECTURE_ALIASES.get(reported.lower(), reported)


def name() -> str:
    """Return the processor's name, or "" if it is unknown.

    It is in cpuinfo on x86, and in the device tree on Arm boards.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
        with open("/proc/device-tree/model", encoding="utf-8", errors="replace") as stream:
            return stream.read().strip("\0\n ")
    except OSError:
        return ""


def instruction_sets() -> list[str]:
    """Return those of `X86` or `ARM` that this processor has, in that order; empty if the kernel reports none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith(("flags", "Features")):
                    reported = set(line.partition(":")[2].split())
                    return [flag for flag in (*X86, *ARM) if flag in reported]
    except OSError:
        pass
    return []


def usable_cores() -> set[int]:
    """Return the numbers of the cores that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def usable_core_count() -> int:
    """Return how many cores this process may run on."""
    return len(usable_cores())
