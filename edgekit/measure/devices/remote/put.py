"""Appends standard input to `desk/incoming/SHA256`, and moves that to `desk/SHA256SUFFIX` when its digest is right.

A runner is what `edgerun` in the home starts from then on.

Answers as `edgerun receive` does: lines of JSON with the bytes that are safe here. Exit codes 4: another offset; 7: no
room; 8: another digest, or a home in which others can write.
Arguments: the home, the sha256, the suffix, the offset, the size, bytes between two answers.
"""

import hashlib
import json
import os
import stat
import sys

PIECE_BYTES = 1 << 16
KEEP = 3
LAUNCHER = """#!/bin/sh
# Made by `edgekit fleet`: the newest runner that was brought here, with the packages that were brought.
EDGERUN_HOME=$(dirname "$(readlink -f "$0")")
packages=$(sed "s|^|$EDGERUN_HOME/desk/packages/|" "$EDGERUN_HOME/desk/packages/used" 2>/dev/null | tr '\\n' ':')
PYTHONPATH=$packages$PYTHONPATH
PYTHONPATH=${PYTHONPATH%:}  # an empty name would be the folder that it is started in
export EDGERUN_HOME PYTHONPATH
exec "{python}" "$EDGERUN_HOME/desk/{runner}.pyz" "$@"
"""


def main(home: str, sha256: str, suffix: str, offset: int, size: int, acknowledge: int) -> None:
    desk = folder(os.path.join(folder(home), "desk"))
    final = os.path.join(desk, sha256 + suffix)
    path = os.path.join(folder(os.path.join(desk, "incoming")), sha256)
    if os.path.isfile(final) and digest(final) == sha256:
        tell(sha256, size, True)
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    at = told = os.fstat(handle).st_size
    if at != offset:
        tell(sha256, at, False)
        end(4, sha256 + ": " + str(at) + " bytes are here, so send from there")
    while at < size:
        data = os.read(0, min(PIECE_BYTES, size - at))
        if not data:
            break
        while data:
            written = os.write(handle, data)
            data, at = data[written:], at + written
        if acknowledge and at - told >= acknowledge:
            os.fsync(handle)
            tell(sha256, at, False)
            told = at
    os.fsync(handle)
    if at >= size:
        if digest(path) != sha256:
            os.unlink(path)
            end(8, sha256 + ": what came has another digest, and was removed; send the file again")
        os.chmod(path, 0o500 if suffix == ".pyz" else 0o400)
        os.replace(path, final)
        sync(desk)
        if suffix == ".pyz":
            launch(home, sha256)
            forget(desk)
    tell(sha256, at, at >= size)


def folder(path: str) -> str:
    """A folder that is this user's alone, made if need be."""
    if not os.path.lexists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.mkdir(path, 0o700)
        sync(os.path.dirname(path))
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        end(8, path + ": is no folder of this user's in which nobody else can write; look at it, or name another home")
    return path


def launch(home: str, runner: str) -> None:
    """`edgerun` in the home, for services and for people on the device."""
    temporary = os.path.join(home, ".edgerun." + str(os.getpid()) + ".tmp")
    with open(temporary, "w") as stream:
        stream.write(LAUNCHER.replace("{python}", sys.executable).replace("{runner}", runner))
        stream.flush()
        os.fsync(stream.fileno())
    os.chmod(temporary, 0o700)
    os.replace(temporary, os.path.join(home, "edgerun"))
    sync(home)


def forget(desk: str) -> None:
    """Runners of old, but the newest ones: a service may have been started with one of these."""
    paths = [os.path.join(desk, name) for name in os.listdir(desk) if name.endswith(".pyz")]
    for path in sorted(paths, key=os.path.getmtime)[:-KEEP]:
        os.unlink(path)


def digest(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as stream:
        for data in iter(lambda: stream.read(1 << 20), b""):
            found.update(data)
    return found.hexdigest()


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
        main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7]))
    except OSError as error:
        end(7, str(error.strerror) + " (" + str(error.filename or "the home's disk") + ")")
