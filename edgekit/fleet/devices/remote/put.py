"""Append standard input to `fleet/incoming/SHA256`, and move the file to `fleet/NAME` when it is complete.

With `launch`, the file is a runner, and the script `edgerun` in the home starts it from then on.

The answers are those of `edgerun receive`: lines of JSON with the number of bytes that are stored safely. The exit code
is 4 if the offset is wrong, 7 if a file cannot be written, and 8 if the digest is wrong or other users can write to the
home.

Arguments: the home, the sha256, the name, `launch` or "", the offset, the size, and the bytes between two answers.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
import sys

PIECE_BYTES = 1 << 16
KEEP = 3
LAUNCHER = """#!/bin/sh
# Written by `edgekit fleet`. Starts the newest runner that was sent to this device, with the packages that were sent.
EDGERUN_HOME=$(dirname "$(readlink -f "$0")")
packages=$(sed "s|^|$EDGERUN_HOME/fleet/packages/|" "$EDGERUN_HOME/fleet/packages/used" 2>/dev/null | tr '\\n' ':')
PYTHONPATH=$packages$PYTHONPATH
PYTHONPATH=${PYTHONPATH%:}  # an empty entry would stand for the working directory
export EDGERUN_HOME PYTHONPATH
exec "{python}" "$EDGERUN_HOME/fleet/{runner}.pyz" "$@"
"""


def main(home: str, sha256: str, name: str, launched: str, offset: int, size: int, acknowledge: int) -> None:
    parent = folder(os.path.join(folder(home), "fleet"))
    final = parent
    for part in name.split("/"):
        final = os.path.join(folder(final), part)
    path = os.path.join(folder(os.path.join(parent, "incoming")), sha256)
    if not is_there(final, sha256):
        receive(path, final, sha256, offset, size, acknowledge)
    if is_there(final, sha256):
        if launched:
            launch(home, sha256)
        if name.endswith(".pyz"):
            forget(home, sha256)
        tell(sha256, size, True)
    else:
        tell(sha256, os.path.getsize(path) if os.path.exists(path) else 0, False)


def receive(path: str, final: str, sha256: str, offset: int, size: int, acknowledge: int) -> None:
    """Receive until the file is complete or the input ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    position = acknowledged = os.fstat(handle).st_size
    if position != offset:
        tell(sha256, position, False)
        end(4, sha256 + ": " + str(position) + " bytes have arrived; send from that offset")
    while position < size:
        data = os.read(0, min(PIECE_BYTES, size - position))
        if not data:
            break
        position = append(handle, path, data, position, sha256)
        if acknowledge and position - acknowledged >= acknowledge:
            os.fsync(handle)
            tell(sha256, position, False)
            acknowledged = position
    os.fsync(handle)
    fcntl.flock(handle, fcntl.LOCK_EX)
    if position < size or not is_at(handle, path):  # to be continued, or another workstation was faster
        return
    if digest(path) != sha256:
        os.unlink(path)
        end(8, sha256 + ": the received file has another digest and was removed; send it again")
    os.chmod(path, 0o500 if final.endswith(".pyz") else 0o400)
    os.replace(path, final)
    sync(os.path.dirname(final))


def append(handle: int, path: str, data: bytes, position: int, sha256: str) -> int:
    """Write all of the data and return the new size, unless another sender has written meanwhile."""
    fcntl.flock(handle, fcntl.LOCK_EX)  # for each piece, so that others can continue if this connection breaks
    try:
        size = os.fstat(handle).st_size
        if size != position or not is_at(handle, path):
            tell(sha256, size if is_at(handle, path) else 0, False)
            end(4, sha256 + ": another workstation is sending it too; query the offset, and continue from there")
        while data:
            written = os.write(handle, data)
            data, position = data[written:], position + written
    finally:
        fcntl.flock(handle, fcntl.LOCK_UN)
    return position


def is_at(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except OSError:
        return False


def is_there(path: str, sha256: str) -> bool:
    return os.path.isfile(path) and digest(path) == sha256


def folder(path: str) -> str:
    """Return a folder that only this user can write to, created if necessary."""
    if not os.path.lexists(path):
        ancestor = os.path.dirname(path)
        while not os.path.lexists(ancestor):
            ancestor = os.path.dirname(ancestor)
        if not os.path.isdir(ancestor):
            end(7, ancestor + ": is not a folder, so no folder can be created in it; name another home in hosts.yaml")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileExistsError):  # another workstation was faster
            os.mkdir(path, 0o755 if path == "/var/lib/edge" else 0o700)  # as the runner does
        sync(os.path.dirname(path))
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        end(8, path + ": is not a folder of this user that nobody else can write to; check it, or name another home")
    return path


def launch(home: str, runner: str) -> None:
    """Write the script `edgerun` in the home, which services and users of the device call."""
    temporary = os.path.join(home, ".edgerun." + str(os.getpid()) + ".tmp")
    with open(temporary, "w") as stream:
        stream.write(LAUNCHER.replace("{python}", sys.executable).replace("{runner}", runner))
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(temporary, 0o700)
    os.replace(temporary, os.path.join(home, "edgerun"))
    sync(home)


def forget(home: str, sha256: str) -> None:
    """Remove old runners, except the newest ones, this one and the one that the launcher starts."""
    parent, launcher = os.path.join(home, "fleet"), os.path.join(home, "edgerun")
    used = sha256
    if os.path.exists(launcher):
        with open(launcher) as stream:
            used += stream.read()
    runners = [name for name in os.listdir(parent) if name.endswith(".pyz")]
    paths = [os.path.join(parent, name) for name in runners if name[:-4] not in used]
    for path in sorted(paths, key=os.path.getmtime)[: 1 - KEEP]:
        os.unlink(path)


def digest(path: str) -> str:
    hasher = hashlib.sha256()
    with open(path, "rb") as stream:
        for data in iter(lambda: stream.read(1 << 20), b""):
            hasher.update(data)
    return hasher.hexdigest()


def sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def tell(sha256: str, offset: int, stored: bool) -> None:
    sys.stdout.write(json.dumps({"sha256": sha256, "offset": offset, "stored": stored}) + "\n")
    sys.stdout.flush()


def end(code: int, text: str) -> None:
    sys.stderr.write("edgerun: " + text + "\n")
    sys.exit(code)


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], *map(int, sys.argv[5:8]))
    except OSError as error:
        end(7, str(error.strerror) + " (" + str(error.filename or "the home's disk") + ")")
