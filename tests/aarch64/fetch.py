"""Fetches an aarch64 device into build/aarch64: Debian's Python and the real wheels, to be run by qemu-user.

`python -m tests.aarch64.fetch`. The packages come from the machine's own sources through an apt that keeps its state
in a folder of its own, so that nothing of the system changes; they are unpacked, never installed. What was fetched is
moved into place at the end and found again by its stamp: an interrupted fetch is done again, a finished one is not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DEVICE = ROOT / "build" / "aarch64"
PYTHON = "3.11"
PACKAGES = [
    f"python{PYTHON}-minimal", f"libpython{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libc6", "libgcc-s1",
    "libstdc++6", "zlib1g", "libexpat1", "libffi8", "libbz2-1.0", "liblzma5", "libuuid1", "libcrypt1", "libssl3",
]  # fmt: skip
WHEELS = {
    "litert": ["numpy==2.4.6", "ai-edge-litert==2.3.0", "pillow==13.0.0", "tokenizers==0.23.3"],
    "tflite_runtime": ["numpy==1.26.4", "tflite-runtime==2.14.0", "pillow==13.0.0", "tokenizers==0.23.3"],
    "openvino": ["numpy==1.26.4", "openvino==2026.4.1", "pillow==13.0.0", "tokenizers==0.23.3"],
    "onnxruntime": ["numpy==2.4.6", "onnxruntime==1.31.1", "pillow==13.0.0", "tokenizers==0.23.3"],
}
GLIBC = 36  # Debian 12 has glibc 2.36
PLATFORMS = ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in range(17, GLIBC + 1))]
WISH = {"packages": PACKAGES, "wheels": WHEELS, "platforms": PLATFORMS}
STAMP = "fetched.json"


class FetchError(Exception):
    """What could not be had, and what to do about it."""


def emulator() -> str | None:
    """Path of qemu's aarch64 user emulator."""
    return shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")


def is_fetched() -> bool:
    """Whether build/aarch64 holds everything that is needed now."""
    try:
        return bool(json.loads((DEVICE / STAMP).read_text()) == WISH)
    except (OSError, ValueError):
        return False


def fetch() -> None:
    """Make build/aarch64 anew; it appears whole or not at all."""
    partial = DEVICE.with_name(f"{DEVICE.name}.partial")
    for old in (partial, DEVICE):
        shutil.rmtree(old, ignore_errors=True)
    _unpack_packages(partial)
    for name, packages in WHEELS.items():
        _unpack_wheels(partial / "wheels" / name, packages, partial / "site" / name)
    for spent in ("apt", "debs", "wheels"):
        shutil.rmtree(partial / spent)
    (partial / STAMP).write_text(json.dumps(WISH))
    partial.rename(DEVICE)


def _unpack_packages(partial: Path) -> None:
    apt = ["apt-get", "--quiet=2", "--config-file", str(_private_apt(partial / "apt"))]
    (partial / "debs").mkdir()
    _run(*apt, "update")
    _run(*apt, "download", *PACKAGES, cwd=partial / "debs")
    for package in sorted((partial / "debs").glob("*.deb")):
        _run("dpkg-deb", "--extract", str(package), str(partial / "root"))


def _private_apt(folder: Path) -> Path:
    """A configuration with which apt knows arm64 alone, and keeps what it learns in this folder."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    lines = [
        f'Dir::State "{folder}/state";',
        f'Dir::State::status "{folder}/status";',
        f'Dir::Cache "{folder}/cache";',
        'APT::Architecture "arm64";',
        "#clear APT::Architectures;",
        'APT::Architectures { "arm64"; };',
        'APT::Sandbox::User "";',  # the folder may be one that the user _apt cannot enter
    ]
    path = folder / "apt.conf"
    path.write_text("\n".join([*lines, ""]))
    return path


def _unpack_wheels(folder: Path, packages: list[str], site: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    platforms = [part for name in PLATFORMS for part in ("--platform", name)]
    _run(*pip, *platforms, "--python-version", PYTHON, "--implementation", "cp", "--dest", str(folder), *packages)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)


def _install_emulator() -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise FetchError("qemu-aarch64 is not installed; as root, run: apt-get install qemu-user")
    _run("apt-get", "--quiet=2", "update")
    _run("apt-get", "--quiet=2", "install", "--yes", "--no-install-recommends", "qemu-user")


def _run(*command: str, cwd: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    except FileNotFoundError:
        raise FetchError(f"{command[0]} is not installed; the device is fetched on Debian 12 or a relative") from None
    if done.returncode != 0:
        raise FetchError(f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()[-2000:]}")


def main() -> int:
    """Exit code: 0 when the emulator and the device are here, 1 with the reason otherwise."""
    try:
        if emulator() is None:
            _install_emulator()
        if not is_fetched():
            fetch()
    except FetchError as error:
        print(f"aarch64: {error}", file=sys.stderr)
        return 1
    print(f"aarch64: {DEVICE.relative_to(ROOT)} is ready")
    return 0


if __name__ == "__main__":
    sys.exit(main())
