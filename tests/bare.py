"""Run a command as on a bare machine, or with kernels for older processors.

`python -m tests.bare COMMAND…` runs it without any program that Debian's required packages, Python and make do not
bring, and without EDGEKIT_SHARED and CI. `python -m tests.bare --kernels COMMAND…` runs it without AVX-512 and without
AMX, in turn, if the processor has them. The exit code is the first that is not 0.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.requirements import ROOT, x86_features

BIN = ROOT / "build" / "bare" / "bin"
FOLDERS = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")
OLDER_KERNELS = {
    "avx512": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    },
    "amx": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16", "OPENBLAS_CORETYPE": "SkylakeX"},
}
"""By a feature of the processor, the switches that keep libraries from using it. tests/README.md says what obeys."""


def required_programs() -> list[Path]:
    """The programs of Debian's required packages that are installed."""
    query = ["dpkg-query", "--show", "--showformat", r"${Package} ${Essential} ${Priority}\n"]
    packages = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [line.split()[0] for line in packages if "required" in line or "yes" in line]
    files = subprocess.run(["dpkg", "--listfiles", *names], capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in files.splitlines() if line.startswith(FOLDERS) and os.access(line, os.X_OK)]


def bare_environment(folder: Path) -> dict[str, str]:
    """The environment whose PATH is `folder`, which gets a link to each program of a bare machine."""
    folder.mkdir(parents=True, exist_ok=True)
    for link in folder.iterdir():
        link.unlink()
    for program in (*required_programs(), Path("/usr/bin/make")):
        if program.is_file() and not (folder / program.name).exists():
            (folder / program.name).symlink_to(program)
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        (folder / name).symlink_to(Path(sys.base_prefix) / "bin" / name)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "EDGEKIT_SHARED")}
    return {**kept, "PATH": str(folder)}


def main() -> int:
    """See the module's text."""
    command = sys.argv[1:]
    if command[:1] != ["--kernels"]:
        return subprocess.run(command, env=bare_environment(BIN), check=False).returncode
    codes = []
    for feature in sorted(x86_features() & set(OLDER_KERNELS)):
        switches = OLDER_KERNELS[feature]
        words = " ".join(f"{name}='{value}'" for name, value in switches.items())
        print(f"\nWithout {feature.upper()}: {words}", flush=True)
        codes.append(subprocess.run(command[1:], env={**os.environ, **switches}, check=False).returncode)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
