"""An aarch64 device: Debian's Python with one interpreter, on a processor that qemu-user stands in for.

qemu looks for every file below its prefix first. The prefix holds links to Debian's libraries, and what an Arm kernel
would report of its processors: without it the libraries read the x86 host's /proc/cpuinfo, and LiteRT and ONNX Runtime
die of it. A result from here says that an answer is right, and nothing about time.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .fetch import DEVICE, PYTHON, emulator

CORES = 4


@dataclass(frozen=True)
class Processor:
    """One of qemu's: its part number, revision (variant, patch), and features as Linux names them."""

    part: int
    variant: int
    patch: int
    features: str

    def cpuinfo(self) -> str:
        """/proc/cpuinfo."""
        rows = {
            "BogoMIPS": "108.00",
            "Features": self.features,
            "CPU implementer": "0x41",
            "CPU architecture": "8",
            "CPU variant": hex(self.variant),
            "CPU part": hex(self.part),
            "CPU revision": str(self.patch),
        }
        core = "\n".join(f"{name}\t: {value}" for name, value in rows.items())
        return "".join(f"processor\t: {number}\n{core}\n\n" for number in range(CORES))

    def midr(self) -> str:
        """The main ID register, as /sys shows it."""
        return f"0x{0x41 << 24 | self.variant << 20 | 0xF << 16 | self.part << 4 | self.patch:016x}\n"


OLDER = "fp asimd evtstrm crc32 cpuid"
# Those of a Raspberry Pi 4 and 5; the second has the int8 dot product, for which libraries have kernels of their own
PROCESSORS = {
    "cortex-a72": Processor(0xD08, 0, 3, OLDER),
    "cortex-a76": Processor(
        0xD0B,
        4,
        1,
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp",
    ),
}


def prefix(processor: str, folder: Path) -> Path:
    """A prefix for qemu in this folder."""
    folder.mkdir()
    for name in ("etc", "lib", "usr"):
        (folder / name).symlink_to(DEVICE / "root" / name)
    facts = PROCESSORS[processor]
    (folder / "proc").mkdir()
    (folder / "proc" / "cpuinfo").write_text(facts.cpuinfo())
    for number in range(CORES):
        register = folder / f"sys/devices/system/cpu/cpu{number}/regs/identification/midr_el1"
        register.parent.mkdir(parents=True)
        register.write_text(facts.midr())
    return folder


def python(processor: str, prefix: Path) -> Path:
    """What the device calls Python: a script that starts qemu, so that Python can start itself again."""
    path = prefix / "python"
    real = DEVICE / "root" / "usr" / "bin" / f"python{PYTHON}"
    path.write_text(f"#!/bin/sh\nexec '{emulator()}' -cpu {processor} -L '{prefix}' -0 \"$0\" '{real}' \"$@\"\n")
    path.chmod(0o755)
    return path


@dataclass(frozen=True)
class Device:
    """A processor with one interpreter installed, and a folder that stands in for the user's cache."""

    processor: str
    interpreter: str
    python: Path
    cache: Path

    def run(
        self, *arguments: object, timeout_s: int = 300, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Its Python on these arguments."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        added = {
            "PYTHONHOME": str(DEVICE / "root" / "usr"),
            "PYTHONPATH": str(DEVICE / "site" / self.interpreter),
            "PYTHONNOUSERSITE": "1",
            "XDG_CACHE_HOME": str(self.cache),
        }
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            cwd=self.cache,
            env={**kept, **added, **(environment or {})},
            check=False,
        )
