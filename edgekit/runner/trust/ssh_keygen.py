"""`ssh-keygen -Y verify` as a process: the only place on the device where a signature is verified."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from edgekit.runner.errors import TrustError

LIMIT_S = 60
"""Under emulation it takes half a second."""


class Signature(NamedTuple):
    """One signature and what it must be. `expires_s` is when its key ends, in seconds since 1970, or None."""

    message: bytes
    armour: bytes
    namespace: str
    principal: str
    key: str
    expires_s: float | None
    where: str


def find() -> str:
    """The path of ssh-keygen; TrustError where there is none."""
    for folder in os.get_exec_path():
        path = os.path.join(folder, "ssh-keygen")
        if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise TrustError(
        f"ssh-keygen: not found in PATH ({os.environ.get('PATH', '')[:200]!r}), so no signature can be verified here; "
        "install the package openssh-client"
    )


def verify(signatures: Sequence[Signature], revoked: Sequence[str] = (), now_s: float | None = None) -> None:
    """All of them, side by side; TrustError for the first that does not hold at the time `now_s`, by default now."""
    program = find()
    with private_folder() as folder:
        running = [_start(program, folder, place, each, revoked, now_s) for place, each in enumerate(signatures)]
        ended = [_end(process) for process in running]
    for each, (code, said) in zip(signatures, ended):
        good = f'Good "{each.namespace}" signature for {each.principal} with '
        lines = said.splitlines()
        if code != 0 or not any(line.startswith(good) for line in lines):
            reason = next((line for line in lines if line.strip()), f"exit code {code}")
            raise TrustError(
                f"{each.where}: the signature of {each.principal} does not verify ({reason[:200]}); "
                "copy the files again or sign again"
            )


@contextmanager
def private_folder() -> Iterator[str]:
    """A folder that only this user can enter, removed afterwards. `tempfile` would load OpenSSL, 4 ms."""
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"edgekit-{os.urandom(12).hex()}")
    os.mkdir(folder, 0o700)
    try:
        yield folder
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def stamp(at_s: float) -> str:
    """A time as ssh-keygen reads it under TZ=UTC."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(at_s))


def _start(
    program: str, folder: str, place: int, each: Signature, revoked: Sequence[str], now_s: float | None
) -> subprocess.Popen[bytes]:
    until = "" if each.expires_s is None else f',valid-before="{stamp(each.expires_s)}"'
    line = f'{each.principal} namespaces="{each.namespace}"{until} {each.key}\n'
    allowed = _write(folder, f"allowed{place}", line.encode("ascii"))
    armour = _write(folder, f"signature{place}", each.armour)
    command = [program, "-Y", "verify", "-f", allowed, "-I", each.principal, "-n", each.namespace, "-s", armour]
    if revoked:  # an empty list would be taken for one that revokes nobody
        command += ["-r", _write(folder, f"revoked{place}", "".join(f"{key}\n" for key in revoked).encode("ascii"))]
    if now_s is not None:
        command += ["-O", f"verify-time={stamp(now_s)}"]
    with open(_write(folder, f"message{place}", each.message), "rb") as message:
        return subprocess.Popen(
            command,
            stdin=message,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"TZ": "UTC", "LC_ALL": "C"},
            cwd=folder,
        )


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise TrustError(f"ssh-keygen: no answer within {LIMIT_S} s; try again when the device is less busy") from None
    return process.returncode, said.decode("utf-8", "replace")


def _write(folder: str, name: str, data: bytes) -> str:
    path = os.path.join(folder, name)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
        stream.write(data)
    return path
