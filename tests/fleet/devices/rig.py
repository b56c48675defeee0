"""Devices that are real as far as SSH goes: OpenSSH's sshd on 127.1.x.y of this machine, each address with a home.

See `Rig`, and the fixtures of `conftest.py`.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests import requirements
from tests.conftest import ROOT

MOST_ADDRESSES = 16
"""The most addresses that one sshd listens on."""
SESSION = """#!/bin/sh
set -- $SSH_CONNECTION
unset PYTHONPATH EDGERUN_HOME
export HOME={devices}/$3 XDG_CACHE_HOME={devices}/$3/.cache PATH={bin}:$PATH
cd "$HOME" || exit 1
printf . >> .calls
if [ -f .rig ]; then . ./.rig; fi
exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
"""Runs each command in the home of the device that was called; `.rig` there may change what it finds."""
CONFIG = """
Port {port}
{addresses}
HostKey {key}
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AuthorizedKeysFile {authorized}
ForceCommand {session}
SetEnv HOME={devices}
MaxStartups 2000
MaxSessions 100
LogLevel ERROR
"""


class Rig:
    """A workstation and `count` devices, the first at 127.1.0.1; `home` is the workstation's, with keys.

    `before`: lines of shell, such as a mount, that only the devices see.
    """

    def __init__(self, folder: Path, count: int, before: str = "") -> None:
        self._before = before
        self.folder, self.count, self.user = folder, count, _user()
        self.home = folder / "workstation"
        self.ssh = self.home / ".ssh"
        for parent in (self.home, folder / "devices", folder / "bin"):
            parent.mkdir(parents=True)
        self.ssh.mkdir(mode=0o700)
        self.port = _free_port([address(number) for number in range(count)])
        self.host_key, self._key = make_key(folder / "host_key"), make_key(self.ssh / "id_ed25519")
        public = self._key.with_suffix(".pub").read_text()
        (folder / "authorized_keys").write_text(f'from="127.0.0.0/8" {public}')
        _script(folder / "session", SESSION.format(devices=folder / "devices", bin=folder / "bin"))
        _script(folder / "bin" / "python3", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for number in range(count):
            self.device(number).mkdir()
        self.know(*((address(number), self.port) for number in range(count)))
        self._servers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Rig:
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # which sshd wants of root
        self.start_devices(range(self.count))
        return self

    def start_devices(self, numbers: range) -> None:
        """Start the sshd processes of these devices; each serves up to `MOST_ADDRESSES` of them."""
        for first in numbers[::MOST_ADDRESSES]:
            self._start(range(first, min(numbers.stop, first + MOST_ADDRESSES)))
        for first in numbers[::MOST_ADDRESSES]:
            self._wait_for(first)

    def __exit__(self, *error: object) -> None:
        self.stop_devices()

    def stop_devices(self) -> None:
        """Stop all sshd processes, so that no device answers any more."""
        for server in self._servers:
            server.terminate()
        for server in self._servers:
            server.wait(timeout=30)
        self._servers.clear()

    def device(self, number: int) -> Path:
        """The home directory of a device."""
        return self.folder / "devices" / address(number)

    def setting(self, number: int, lines: str) -> None:
        """Set lines of shell that run before each command on a device."""
        (self.device(number) / ".rig").write_text(f"{lines}\n")

    def know(self, *places: tuple[str, int], key: Path | None = None) -> None:
        """Add lines to known_hosts."""
        public = (key or self.host_key).with_suffix(".pub").read_text().split()
        with open(self.ssh / "known_hosts", "a") as stream:
            stream.writelines(f"[{host}]:{port} {public[0]} {public[1]}\n" for host, port in places)

    def forget(self, number: int) -> None:
        """Remove a device from known_hosts."""
        path = self.ssh / "known_hosts"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if not line.startswith(f"[{address(number)}]:")))

    def inventory(self, text: str | None = None, **more: dict[str, object]) -> Path:
        """Write hosts.yaml with the devices d0, d1, … of class `box`; `more` adds keys to single ones."""
        path = self.folder / "hosts.yaml"
        lines = [f"defaults: {{user: {self.user}, port: {self.port}}}", "hosts:"]
        for number in range(self.count):
            keys = {"class": "box", "host": address(number), **more.get(f"d{number}", {})}
            lines.append(f"  d{number}: {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}")
        path.write_text(text or "\n".join(lines) + "\n")
        return path

    def environment(self) -> dict[str, str]:
        """Return the environment of programs on the workstation."""
        known = {key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}
        return {**known, "HOME": str(self.home), "PYTHONPATH": str(ROOT)}

    def edgekit(self, *words: object, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Run `edgekit …` on the workstation."""
        command = [sys.executable, "-m", "edgekit", *map(str, words)]
        return subprocess.run(
            command, capture_output=True, text=True, env=self.environment(), cwd=self.folder, timeout=timeout_s
        )

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start `edgekit …` on the workstation and return the process."""
        command = [sys.executable, "-m", "edgekit", *map(str, words)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment(), cwd=self.folder)

    def edgerun(self, number: int, *words: object) -> list[str]:
        """Return the command `edgerun …` of a device, for `subprocess` with `device_environment`."""
        return [sys.executable, "-m", "edgekit.runner", *map(str, words)]

    def device_environment(self, number: int) -> dict[str, str]:
        """Return the environment of a program on a device."""
        home = self.device(number)
        return {**os.environ, "HOME": str(home), "EDGERUN_HOME": str(home / ".edge"), "PYTHONPATH": str(ROOT)}

    def _start(self, numbers: Sequence[int]) -> None:
        path = self.folder / f"sshd_config.{numbers[0]}"
        path.write_text(
            CONFIG.format(
                port=self.port,
                addresses="\n".join(f"ListenAddress {address(number)}" for number in numbers),
                key=self.host_key,
                authorized=self.folder / "authorized_keys",
                session=self.folder / "session",
                devices=self.folder / "devices",  # until the session names one: no login reads this user's own files
            )
        )
        with open(self.folder / "sshd.log", "ab") as log:
            command = [requirements.program("sshd"), "-D", "-e", "-f", str(path)]
            if self._before:
                script = f"set -e; {self._before}; exec {' '.join(command)}"
                command = ["unshare", "--mount", "sh", "-c", script]
            self._servers.append(subprocess.Popen(command, stdout=log, stderr=log))

    def _wait_for(self, number: int) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection((address(number), self.port), timeout=1):
                return
            time.sleep(0.05)
        raise RuntimeError(f"sshd does not answer: {(self.folder / 'sshd.log').read_text()[-2000:]}")


def running(runner: Path, command: str) -> list[int]:
    """Return the processes that run a command of this runner, without those that supervise them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if path.joinpath("cmdline").read_bytes().split(b"\0")[1:3] == [str(runner).encode(), command.encode()]:
                found.append(int(path.name))
    return found


def need_rig() -> None:
    """Skip the test if a program that the rig needs is missing."""
    requirements.package("asyncssh")
    requirements.program("sshd")


def address(number: int) -> str:
    """Return the IP address of a device."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def make_key(path: Path, kind: str = "ed25519") -> Path:
    """Create a private key without a passphrase, and the public key beside it."""
    subprocess.run(
        [requirements.program("ssh-keygen"), "-q", "-t", kind, "-N", "", "-C", path.name, "-f", str(path)], check=True
    )
    return path


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _free_port(addresses: Sequence[str]) -> int:
    """Return a port that is free on all of these addresses."""
    for _ in range(100):
        port = random.randrange(20_000, 60_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for each in addresses:
                stack.enter_context(socket.socket()).bind((each, port))
            return port
    raise RuntimeError("no port is free")
