"""What a command says to the world outside: its calls for a connection, by strace, and what it leaves in a home.

Without strace, or where the system lets nobody trace, the command runs unwatched and `calls` skips.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

from tests import requirements

STRACE = ("strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=connect,sendto", "-e", "signal=none", "-s", "0", "-o")
ADDRESS = re.compile(r"sa_family=AF_INET6?, .*?htons\((\d+)\).*?\"([0-9a-fA-F.:]+)\"")
NAMES = 53
"""The port of a name server: who asks one, even on this machine, means to leave it."""
SWITCHES = ("ORT_", "NNCF_", "HF_", "MLFLOW_", "DO_NOT_TRACK", "XDG_", "CI", "PYTEST_", "JUPYTER_", "IPYTHON")
"""What may silence a library, or lead it elsewhere, and is not edgekit's doing."""


def environment(home: Path, **more: str) -> dict[str, str]:
    """That of a user whose home is `home`, who has switched nothing off."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SWITCHES)}
    return {**kept, "HOME": str(home), **more}


def command(trace: Path) -> list[str]:
    """What to put before a command for a trace of it and of all that it starts; nothing where none can be had."""
    return [*STRACE, str(trace)] if _works() else []


def calls(trace: Path | None) -> list[str]:
    """Addresses outside this machine that were called, by whatever process."""
    if trace is None or not trace.is_file():
        requirements.tracing()
        raise AssertionError("strace can trace here, and left no trace")
    found = [ADDRESS.search(line) for line in trace.read_text(errors="replace").splitlines()]
    called = [(match[2], int(match[1])) for match in found if match]
    return [f"{host}:{port}" for host, port in called if port == NAMES or not _here(host)]


def left(home: Path) -> list[str]:
    """Files in a home, relative to it."""
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


def _here(host: str) -> bool:
    return host.startswith("127.") or host in ("::1", "::ffff:127.0.0.1", "0.0.0.0", "::")


@functools.cache
def _works() -> bool:
    if requirements.find_program("strace") is None:
        return False
    return subprocess.run([*STRACE, os.devnull, "true"], capture_output=True, check=False).returncode == 0
