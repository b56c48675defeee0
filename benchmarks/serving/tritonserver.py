"""tritonserver 2.51.0 from the wheel nvidia-pytriton 0.7.0: its files, command and environment.

The wheel keeps the stubs of the Python backend in another place than Triton expects. It also lacks Python's shared
library, which comes from Debian's package `libpython3.11` or from a Python that is built with `--enable-shared`. The
tests use this module too.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SHARED_MEMORY_BYTES = 1 << 20
"""Initial shared memory of each model. It is small, because containers have only 64 MB in /dev/shm."""


@dataclass(frozen=True)
class TritonInstallation:
    """The wheel in an environment of Python 3.11. `python` is the Python of that environment."""

    python: Path

    @property
    def packages(self) -> Path:
        """The folder from which models on the Python backend can import."""
        return self.python.parents[1] / "lib" / "python3.11" / "site-packages"

    @property
    def home(self) -> Path:
        """Triton's own folder in the wheel."""
        return self.packages / "pytriton" / "tritonserver"

    @property
    def program(self) -> Path:
        """Path of the server."""
        return self.home / "bin" / "tritonserver"

    def command(self, repository: Path, backends: Path, ports: Sequence[int], prefix: str) -> list[str]:
        """Return the command on loopback.

        `ports` are those of HTTP, gRPC and metrics. The names of its shared memory begin with `prefix`.
        """
        http, grpc, metrics = ports
        return [
            str(self.program),
            f"--model-repository={repository}",
            f"--backend-directory={backends}",
            f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_BYTES}",
            f"--backend-config=python,shm-region-prefix-name={prefix}",
            f"--http-port={http}", f"--grpc-port={grpc}", f"--metrics-port={metrics}",
            "--http-address=127.0.0.1", "--grpc-address=127.0.0.1",
        ]  # fmt: skip

    def backends(self, folder: Path) -> Path:
        """Create `folder` as a backend folder with the stub of Python 3.11; an existing folder is used again."""
        if not folder.is_dir():
            shutil.copytree(self.home / "backends", folder)
            stub = folder / "python" / "triton_python_backend_stub"
            shutil.copy2(self.home / "python_backend_stubs" / "3.11" / "triton_python_backend_stub", stub)
            stub.chmod(0o755)
        return folder

    def environment(self) -> dict[str, str]:
        """Return environment variables with which the server and its models find the packages of this environment."""
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
        }
        libraries = [str(self.packages / "nvidia_pytriton.libs"), str(sysconfig.get_config_var("LIBDIR"))]
        return {
            **inherited,
            "LD_LIBRARY_PATH": os.pathsep.join([*libraries, *filter(None, [inherited.get("LD_LIBRARY_PATH")])]),
            "PATH": f"{self.python.parent}{os.pathsep}{inherited['PATH']}",
            "PYTHONPATH": str(self.packages),
        }
