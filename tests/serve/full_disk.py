"""A server whose cache folder, temporary folder and standard error lie on a small disk of their own, which fills up."""

from __future__ import annotations

import errno
import http.client
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests import requirements
from tests.conftest import ROOT
from tests.serve.cached import free_port
from tests.serve.server import READY_S, Server

PAGE = 4096
SCRIPT = """
disk=$1 full=$2; shift 2
mount -t tmpfs -o size=256k edgekit-full "$disk" || exit 99
mkdir -m 700 "$disk/cache" "$disk/temporary" || exit 99
[ "$full" = no ] || cat /dev/zero >"$disk/filler" 2>/dev/null
exec "$@" >>"$disk/stderr.txt" 2>&1
"""
"""The mount is seen by the server and its processes alone, and ends with them."""


@dataclass
class ServerOnDisk(Server):
    """`stderr` is a path as the server sees it; `disk` is the folder that it lies in."""

    disk: Path
    port_of_requests: int
    port_of_admin: int

    @classmethod
    def begin(cls, disk: Path, *arguments: object, full: bool) -> ServerOnDisk:
        """On a disk that is full from the start, or not yet."""
        prefix = requirements.mount()
        disk.mkdir()
        ports = free_port(), free_port()
        options = ("--port", ports[0], "--admin-port", ports[1], "--drain-s", "0.1", *arguments)
        server = [sys.executable, "-m", "edgekit.runner", "serve", *map(str, options)]
        process = subprocess.Popen(
            [*prefix, "sh", "-c", SCRIPT, "sh", str(disk), "yes" if full else "no", *server],
            cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            env={
                **os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(disk / "cache"),
                "TMPDIR": str(disk / "temporary"),
            },
        )  # fmt: skip
        return cls(process, disk / "stderr.txt", disk, *ports)

    def wait_ready(self) -> None:
        """Until it says so over HTTP, for it may not be able to write."""
        until = time.monotonic() + READY_S
        while True:
            if self.process.poll() is not None:
                assert self.process.stderr
                log = self.process.stderr.read().decode(errors="replace")
                raise AssertionError(f"ended with {self.process.returncode}: {log}")
            try:
                if self.get("/v2/health/ready").status == 200 and self.ask("GET", "/v2", url=self.admin).status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            assert time.monotonic() < until, self.log_text()
            time.sleep(0.1)

    @property
    def url(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.port_of_requests}"

    @property
    def admin(self) -> str:
        """HOST:PORT of the repository."""
        return f"127.0.0.1:{self.port_of_admin}"

    @property
    def seen(self) -> Path:
        """The disk, from here."""
        return Path(f"/proc/{self.process.pid}/root{self.disk}")

    def log_text(self) -> str:
        """All that could be written."""
        path = self.seen / self.stderr.name
        return path.read_text(errors="replace") if path.is_file() else ""

    def cached(self) -> list[str]:
        """Files in its cache folder."""
        return sorted(path.name for path in (self.seen / "cache").rglob("*") if path.is_file())

    def fill(self) -> None:
        """To the last byte: the last page of the log, half written, is filled up too."""
        log = self.seen / self.stderr.name
        with open(log, "ab", buffering=0) as stream:
            stream.write(b"\n" * (-log.stat().st_size % PAGE))
        with open(self.seen / "filler", "ab", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(PAGE))
            except OSError as error:
                assert error.errno == errno.ENOSPC, error

    def free_space(self) -> None:
        """Half of the disk is free again."""
        os.truncate(self.seen / "filler", 64 << 10)
