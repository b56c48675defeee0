"""Facts about this device and its Python, read without importing anything that could crash.

Distributions are read from the `.dist-info` folders on `sys.path`, and the hardware from `/proc`, `/sys` and `/dev`.
The parameters `paths` and `root` let tests describe any device as a tree of files.
"""

from __future__ import annotations

import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.device.hardware import emulation, health
from edgekit.runner import cpu

PLUGINS = {"GPU": "libopenvino_intel_gpu_plugin.so", "NPU": "libopenvino_intel_npu_plugin.so"}


OTHER_NAMES = {
    "onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-training"),
    "tensorflow": ("tensorflow-cpu", "tensorflow-gpu", "tensorflow-aarch64", "tensorflow-cpu-aws", "tensorflow-rocm"),
}
"""Distribution -> other distributions that provide the same package."""


@dataclass(frozen=True)
class InstalledDistribution:
    """An installed distribution. `tags` are from its WHEEL file, for example cp311-cp311-manylinux_2_27_x86_64."""

    name: str
    version: str
    tags: tuple[str, ...] = ()
    folder: str = ""

    @property
    def release(self) -> tuple[int, ...]:
        """The version's leading numbers, or () if it has none."""
        return version_numbers(self.version)


@dataclass(frozen=True)
class DeviceFacts:
    """A device and its Python. `glibc` is () if the system has another C library."""

    python: tuple[int, ...]
    executable: str = "python3"
    bits: int = 64
    system: str = "Linux"
    machine: str = "x86_64"
    glibc: tuple[int, ...] = ()
    musl: bool = False
    in_venv: bool = False
    externally_managed: bool = False
    can_make_venv: bool = True
    apt: bool = False  # this is the system's Python, and apt installs packages for it
    distributions: dict[str, InstalledDistribution] = field(default_factory=dict)
    opsets: tuple[int, ...] = ()  # operator sets that the installed openvino defines
    plugins: tuple[str, ...] = ()  # devices other than the CPU for which the installed openvino has a plug-in
    processor: str = ""
    instructions: tuple[str, ...] = ()
    emulator: str = ""
    frequency_driver: str = ""
    cores: float | None = None
    render_nodes: tuple[str, ...] = ()
    closed_nodes: tuple[str, ...] = ()  # device nodes that this user may not open
    accel_nodes: tuple[str, ...] = ()
    opencl_drivers: tuple[str, ...] = ()
    reading: health.HealthReading | None = None

    @property
    def architecture(self) -> str:
        """The architecture of the wheels that this Python can install.

        It may differ from `machine`: a 32-bit Raspberry Pi OS has a 64-bit kernel and reports aarch64.
        """
        narrow = {"aarch64": "armv7l", "x86_64": "i686"}
        return narrow.get(self.machine, self.machine) if self.bits == 32 else self.machine

    def has(self, distribution: str) -> InstalledDistribution | None:
        """Return the installed distribution of that name, or None."""
        names = (distribution, *OTHER_NAMES.get(distribution, ()))
        return next((self.distributions[name] for name in names if name in self.distributions), None)


def gather_facts(paths: Sequence[str] | None = None, root: str | os.PathLike[str] = "/") -> DeviceFacts:
    """Gather the facts of this process. `paths` replaces `sys.path`, and `root` the root of the file system."""
    base = Path(root)
    stdlib = Path(sysconfig.get_path("stdlib"))
    installed = distributions(sys.path if paths is None else paths)
    package = Path(installed["openvino"].folder) / "openvino" if "openvino" in installed else None
    render, accel = _nodes(base, "dev/dri", "renderD"), _nodes(base, "dev/accel", "accel")
    return DeviceFacts(
        python=tuple(sys.version_info[:3]),
        executable=sys.executable or "python3",
        bits=struct.calcsize("P") * 8,
        system=platform.system(),
        machine=platform.machine(),
        glibc=glibc(),
        musl=any(base.glob("lib/ld-musl-*.so.1")) and not glibc(),
        in_venv=sys.prefix != sys.base_prefix,
        externally_managed=(stdlib / "EXTERNALLY-MANAGED").is_file(),
        can_make_venv=(stdlib / "ensurepip").is_dir(),
        apt=(base / "usr/bin/apt").exists() and os.path.dirname(sys.executable or "") == "/usr/bin",
        distributions=installed,
        opsets=_opsets(package) if package else (),
        plugins=tuple(name for name, file in PLUGINS.items() if package and (package / "libs" / file).is_file()),
        processor=cpu.name(),
        instructions=tuple(cpu.instruction_sets()),
        emulator=emulation.emulator() or _other_kernel(base),
        frequency_driver=health.frequency_driver(base),
        cores=health.usable_cores(base),
        render_nodes=render,
        accel_nodes=accel,
        closed_nodes=tuple(node for node in (*render, *accel) if not os.access(node, os.R_OK | os.W_OK)),
        opencl_drivers=_nodes(base, "etc/OpenCL/vendors", ""),
        reading=health.read_health(base),
    )


def distributions(paths: Sequence[str]) -> dict[str, InstalledDistribution]:
    """Return the installed distributions by normalised name; of several with one name, the first on the path."""
    installed: dict[str, InstalledDistribution] = {}
    for path in paths:
        try:
            names = sorted(os.listdir(path or "."))
        except OSError:  # an archive, or a folder that does not exist
            continue
        for entry in names:
            stem, _, suffix = entry.rpartition(".")
            if suffix not in ("dist-info", "egg-info") or "-" not in stem:
                continue
            name, version = stem.split("-")[:2]
            name = name.lower().replace("_", "-").replace(".", "-")
            if name not in installed:
                installed[name] = InstalledDistribution(
                    name, version, _tags(Path(path or ".") / entry / "WHEEL"), str(path or ".")
                )
    return installed


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (2, 14, 0) for "2.14.0rc1"."""
    numbers = []
    for part in version.split("+")[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def _other_kernel(base: Path) -> str:
    """Return the kind of emulation, if the kernel runs on another type of processor than Python reports, or ""."""
    try:
        kind = (base / "sys/devices/system/cpu/modalias").read_text(errors="replace", encoding="utf-8")[:40]
    except OSError:
        return ""
    arm = platform.machine().startswith(("aarch64", "arm"))
    other = {"cpu:type:x86": arm, "cpu:type:aarch64": platform.machine() == "x86_64"}
    return next((f"{name[9:]} emulation" for name, odd in other.items() if odd and kind.startswith(name)), "")


def glibc() -> tuple[int, ...]:
    """Return the version of the C library if it is glibc, or ()."""
    if not hasattr(os, "confstr"):
        return ()
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return ()
    return version_numbers(version) if name == "glibc" else ()


def _tags(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(line.partition(":")[2].strip() for line in lines if line.startswith("Tag:"))


def _opsets(package: Path) -> tuple[int, ...]:
    names = (each.name[len("opset") :] for each in package.glob("opset*") if each.is_dir())
    return tuple(sorted(int(number) for number in names if number.isdigit()))


def _nodes(base: Path, folder: str, prefix: str) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(base / folder))
    except OSError:
        return ()
    return tuple(str(base / folder / name) for name in names if name.startswith(prefix))
