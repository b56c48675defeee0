"""`ssh-keygen -Y verify` as a process: the only place on the device where a signature is verified.

Its input files are kept in memory if the kernel supports that, so that a device with a full disk can still verify.
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
"""Time limit for a verification, which takes half a second under emulation. The systemd watchdog allows `edgerun watch`
more than twice this time."""
NEWEST_OPTION = "verify-time"
PROGRAMS = (
    (os.path.join(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32", "OpenSSH", "ssh-keygen.exe"),)
    if sys.platform == "win32"
    else ("/usr/local/bin/ssh-keygen", "/usr/bin/ssh-keygen", "/run/current-system/sw/bin/ssh-keygen")
)
"""Where administrators install ssh-keygen. PATH is not searched, because whoever sets it could substitute another
program."""
TEMPORARY = "TEMP" if sys.platform == "win32" else "TMPDIR"
"""The variable that names the folder for temporary files."""
TOO_OLD = "is too old, or is not OpenSSH; install OpenSSH 8.8 or newer"


class Signature(NamedTuple):
    """One signature and what it must match. `expires_s` is when its key expires, in seconds since 1970, or None."""

    message: bytes
    armour: bytes
    namespace: str
    principal: str
    key: str
    expires_s: float | None
    where: str


def find_program() -> str:
    """Return the path of the ssh-keygen that verifies. Raises TrustError if there is none."""
    for path in PROGRAMS:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise TrustError(
        f"ssh-keygen: not found as {' or '.join(PROGRAMS)}, so no signature can be verified here; "
        "install the package openssh-client"
    )


def verify(signatures: Sequence[Signature], revoked: Sequence[str] = (), now_s: float | None = None) -> None:
    """Verify all signatures in parallel, at the time `now_s`, by default now.

    Raises
    ------
    TrustError
        A signature does not verify, or ssh-keygen is missing or too old.
    ResourceError
        ssh-keygen cannot be started.
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
    for each, (code, output) in zip(signatures, ended):
        good = f'Good "{each.namespace}" signature for {each.principal} with '
        lines = output.splitlines()
        if code != 0 or not any(line.startswith(good) for line in lines):
            reason = next((line for line in lines if line.strip()), f"exit code {code}")[:200]
            fix = _no_user() or (
                "copy the files again or sign again" if supports_verify_time(program) else f"{program} {TOO_OLD}"
            )
            raise TrustError(f"{each.where}: the signature of {each.principal} does not verify ({reason}); {fix}")


def supports_verify_time(program: str) -> bool:
    """Return whether ssh-keygen accepts a time of verification and keys that expire, as it does since OpenSSH 8.8.

    An older release ignores options that it does not know. So this passes an invalid value, which only newer releases
    reject.
    """
    command = [program, "-Y", "check-novalidate", "-O", f"{NEWEST_OPTION}=?", "-n", "x", "-s", os.devnull]
    try:
        errors = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT_S, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return True
    return NEWEST_OPTION.encode() in errors


def _no_user() -> str:
    """Return what to do if this process's user is not in /etc/passwd, where ssh-keygen looks for it; otherwise ""."""
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return f"user {os.getuid()} is not found in /etc/passwd, which ssh-keygen requires; run as a user that is there"
    return ""


class VerifierFault(NamedTuple):
    """What is wrong with ssh-keygen, and what to do. If it `blocks`, no signature can be verified."""

    message: str
    blocks: bool


def find_fault() -> VerifierFault | None:
    """Return the problem that keeps some or all signatures from being verified here, or None if there is none."""
    try:
        program = find_program()
    except TrustError as error:
        return VerifierFault(str(error), True)
    if _no_user():
        return VerifierFault(f"ssh-keygen: {_no_user()}", True)
    return None if supports_verify_time(program) else VerifierFault(f"{program} {TOO_OLD}", False)


@contextmanager
def private_folder() -> Iterator[str]:
    """Create a folder that only this user can enter, and remove it afterwards.

    `tempfile` is not used, because it would load OpenSSL, which takes 4 ms.
    """
    folder = os.path.join(os.path.abspath(os.environ.get(TEMPORARY) or "/tmp"), f"edgekit-{os.urandom(12).hex()}")
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot be created ({error.strerror}); set {TEMPORARY} to a folder that can be written"
        ) from None
    try:
        yield folder
    finally:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


def format_time(at_s: float) -> str:
    """Format a time as ssh-keygen reads it under TZ=UTC."""
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(at_s))


def _start(
    program: str, files: ExitStack, each: Signature, revoked: Sequence[str], at_s: float
) -> subprocess.Popen[bytes]:
    expiry = "" if each.expires_s is None else f',valid-before="{format_time(each.expires_s)}"'
    line = f'{each.principal} namespaces="{each.namespace}"{expiry} {each.key}\n'
    allowed, armour, message = (_file(files, data) for data in (line.encode("ascii"), each.armour, each.message))
    command = [program, "-Y", "verify", "-f", allowed.path, "-I", each.principal, "-n", each.namespace]
    command += ["-s", armour.path, "-O", f"{NEWEST_OPTION}={format_time(at_s)}"]
    inherited = [allowed, armour]
    if revoked:  # an empty list revokes nobody and can be left out
        inherited.append(_file(files, "".join(f"{key}\n" for key in revoked).encode("ascii")))
        command += ["-r", inherited[-1].path]
    with open(message.path, "rb") as stream:
        return subprocess.Popen(
            command,
            stdin=stream,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=_environment(),
            cwd="/",
            pass_fds=[file.handle for file in inherited if file.handle is not None],
        )


def _environment() -> dict[str, str]:
    """Return an environment with nothing from the caller's except SYSTEMROOT, which programs on Windows need."""
    inherited = {name: os.environ[name] for name in ("SYSTEMROOT",) if sys.platform == "win32" and name in os.environ}
    return {**inherited, "TZ": "UTC", "LC_ALL": "C"}


def _end(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        raise ResourceError(f"ssh-keygen: no answer within {LIMIT_S} s; try again on a less busy device") from None
    return process.returncode, output.decode("utf-8", "replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    with process:  # closes its pipe
        if process.poll() is None:
            process.kill()


class _File(NamedTuple):
    """A file for ssh-keygen: its path, and the `handle` that ssh-keygen must inherit, or None if it is on the disk."""

    path: str
    handle: int | None


def _file(files: ExitStack, data: bytes) -> _File:
    """Write a file in memory, or in a private folder if the kernel does not support that or /proc does not show it."""
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
            f"{folder}: cannot be written ({error.strerror}); set {TEMPORARY} to another folder"
        ) from None


def _written(path: str, data: bytes) -> str:
    with open(path, "wb") as stream:
        stream.write(data)
    return path
