"""`ssh-keygen -Y verify` as a process: the only place on the device where a signature is verified.

What it reads lies in memory where the kernel has such files, so a device whose disk is full still verifies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from edgekit.runner.errors import ResourceError, TrustError

LIMIT_S = 20
"""Under emulation it takes half a second; systemd's watchdog waits longer for `edgerun watch` than this takes twice."""
NEWEST_OPTION = "verify-time"
PROGRAMS = (
    (os.path.join(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32", "OpenSSH", "ssh-keygen.exe"),)
    if sys.platform == "win32"
    else ("/usr/local/bin/ssh-keygen", "/usr/bin/ssh-keygen", "/run/current-system/sw/bin/ssh-keygen")
)
"""Where the administrator of a system puts it. Not the PATH, because whoever sets that would decide what verifies."""
TEMPORARY = "TEMP" if sys.platform == "win32" else "TMPDIR"
"""The variable that names the folder for temporary files."""
TOO_OLD = "is too old, or something else; install OpenSSH 8.8 or newer"


class Signature(NamedTuple):
    """One signature and what it must be. `expires_s` is when its key ends, in seconds since 1970, or None."""

    message: bytes
    armour: bytes
    namespace: str
    principal: str
    key: str
    expires_s: float | None
    where: str


def find_program() -> str:
    """The path of the ssh-keygen that verifies; TrustError where there is none."""
    for path in PROGRAMS:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise TrustError(
        f"ssh-keygen: not found as {' or '.join(PROGRAMS)}, so no signature can be verified here; "
        "install the package openssh-client"
    )


def verify(signatures: Sequence[Signature], revoked: Sequence[str] = (), now_s: float | None = None) -> None:
    """All of them, side by side; TrustError for the first that does not hold at the time `now_s`, by default now.

    TrustError also for an ssh-keygen that is missing or too old; ResourceError where it cannot be asked.
    """
    program, running = find_program(), []
    at_s = time.time() if now_s is None else now_s
    with ExitStack() as files:
        try:
            for each in signatures:
                running.append(_start(program, files, each, revoked, at_s))
            ended = [_end(process) for process in running]
        except OSError as error:
            raise ResourceError(f"{program}: cannot be started ({error.strerror}); try again later") from None
        finally:
            for process in running:
                _stop(process)
    for each, (code, said) in zip(signatures, ended):
        good = f'Good "{each.namespace}" signature for {each.principal} with '
        lines = said.splitlines()
        if code != 0 or not any(line.startswith(good) for line in lines):
            reason = next((line for line in lines if line.strip()), f"exit code {code}")[:200]
            fix = _no_user() or (
                "copy the files again or sign again" if supports_verify_time(program) else f"{program} {TOO_OLD}"
            )
            raise TrustError(f"{each.where}: the signature of {each.principal} does not verify ({reason}); {fix}")


def supports_verify_time(program: str) -> bool:
    """Whether it takes a time to verify at, and keys that end: since OpenSSH 8.8.

    An older one says nothing of an option that it does not know. So this gives a wrong value, of which newer ones
    complain.
    """
    words = [program, "-Y", "check-novalidate", "-O", f"{NEWEST_OPTION}=?", "-n", "x", "-s", os.devnull]
    try:
        said = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return True
    return NEWEST_OPTION.encode() in said


def _no_user() -> str:
    """What to do where the system does not know this process's user, for whom ssh-keygen does nothing; else empty."""
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return f"user {os.getuid()} is not found in /etc/passwd, and ssh-keygen asks for that; run as a user that is"
    return ""


class VerifierFault(NamedTuple):
    """What is wrong with ssh-keygen, and what to do; one that `blocks` lets no signature be verified."""

    message: str
    blocks: bool


def find_fault() -> VerifierFault | None:
    """What keeps signatures from being verified here, or some of them; None where nothing does."""
    try:
        program = find_program()
    except TrustError as error:
        return VerifierFault(str(error), True)
    if _no_user():
        return VerifierFault(f"ssh-keygen: {_no_user()}", True)
    return None if supports_verify_time(program) else VerifierFault(f"{program} {TOO_OLD}", False)


@contextmanager
def private_folder() -> Iterator[str]:
    """A folder that only this user can enter, removed afterwards. `tempfile` would load OpenSSL, 4 ms."""
    folder = os.path.join(os.path.abspath(os.environ.get(TEMPORARY) or "/tmp"), f"edgekit-{os.urandom(12).hex()}")
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot be made ({error.strerror}); let {TEMPORARY} name a folder for this"
        ) from None
    try:
        yield folder
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def format_time(at_s: float) -> str:
    """A time as ssh-keygen reads it under TZ=UTC."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(at_s))


def _start(
    program: str, files: ExitStack, each: Signature, revoked: Sequence[str], at_s: float
) -> subprocess.Popen[bytes]:
    until = "" if each.expires_s is None else f',valid-before="{format_time(each.expires_s)}"'
    line = f'{each.principal} namespaces="{each.namespace}"{until} {each.key}\n'
    allowed, armour, message = (_file(files, data) for data in (line.encode("ascii"), each.armour, each.message))
    command = [program, "-Y", "verify", "-f", allowed.path, "-I", each.principal, "-n", each.namespace]
    command += ["-s", armour.path, "-O", f"{NEWEST_OPTION}={format_time(at_s)}"]
    given = [allowed, armour]
    if revoked:  # an empty list would be taken for one that revokes nobody
        given.append(_file(files, "".join(f"{key}\n" for key in revoked).encode("ascii")))
        command += ["-r", given[-1].path]
    with open(message.path, "rb") as stream:
        return subprocess.Popen(
            command,
            stdin=stream,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            pass_fds=[file.handle for file in given if file.handle is not None],
        )


def _environment() -> dict[str, str]:
    """Nothing of the caller's but SYSTEMROOT, without which no program of Windows finds its libraries."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if sys.platform == "win32" and name in os.environ}
    return {**kept, "TZ": "UTC", "LC_ALL": "C"}


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise ResourceError(f"ssh-keygen: no answer within {LIMIT_S} s; try again on a less busy device") from None
    return process.returncode, said.decode("utf-8", "replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes its pipe
        if process.poll() is None:
            process.kill()


class _File(NamedTuple):
    """Where ssh-keygen reads it. `handle` is to be inherited; None: it lies on the disk."""

    path: str
    handle: int | None


def _file(files: ExitStack, data: bytes) -> _File:
    """In memory, and in a private folder where the kernel has no such files or /proc does not show them."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):
            handle = os.memfd_create("edgekit")
            files.callback(os.close, handle)
            path = f"/proc/self/fd/{handle}"
            if os.path.exists(path):
                return _File(_written(path, data), handle)
    folder = files.enter_context(private_folder())
    try:
        return _File(_written(os.path.join(folder, "file"), data), None)
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot be written ({error.strerror}); let {TEMPORARY} name another folder"
        ) from None


def _written(path: str, data: bytes) -> str:
    with open(path, "wb") as stream:
        stream.write(data)
    return path
