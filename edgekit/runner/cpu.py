"""What the processor is, as the kernel tells it."""

from __future__ import annotations

import os
import sys

X86 = (
    "sse4_1", "avx", "avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx512_bf16",
    "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16",
)  # fmt: skip
ARM = ("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2")
"""Instruction sets that kernels are chosen by: they decide about speed, and about the last bits of a sum."""


ARCHITECTURE_ALIASES = {"arm64": "aarch64", "amd64": "x86_64", "armv8l": "armv7l"}


def architecture() -> str:
    """The architecture by the name that Linux has for it: x86_64, aarch64, armv7l."""
    if sys.platform == "win32":
        found = os.environ.get("PROCESSOR_ARCHITECTURE", "")
    else:
        found = os.uname().machine
    return ARCHITECTURE_ALIASES.get(found.lower(), found)


def name() -> str:
    """The processor's name: x86 says it in cpuinfo, Arm boards in the device tree; empty where neither does."""
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
    """Those of `X86` or `ARM` that this processor has, in that order; empty where the kernel does not say."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
            for line in stream:
                if line.startswith(("flags", "Features")):
                    found = set(line.partition(":")[2].split())
                    return [flag for flag in (*X86, *ARM) if flag in found]
    except OSError:
        pass
    return []


def usable_cores() -> set[int]:
    """The kernel's numbers of the cores that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def usable_core_count() -> int:
    """How many those are."""
    return len(usable_cores())
