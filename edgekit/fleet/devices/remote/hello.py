"""Print what a device is, as one line of JSON after a token; then `edgerun status --json`, if a runner is here.

Arguments: the token, the home or "", and the sha256 of the preferred runner or "". If that runner is not here, another
one reports the status.
"""

import json
import os
import platform
import re
import struct
import sys
import time

MOST_DISTRIBUTIONS = 2000
"""A limit, so that the answer is not larger than the requester will read."""


def main(token: str, home: str, runner: str) -> None:
    if sys.stdout is None:
        sys.exit(
            "edgerun: the login closes standard output, so no answer can be sent; check the startup files of its shell"
        )
    sys.path[:] = [path for path in sys.path if path]  # without the folder in which the login begins
    home = locate(home)
    launched = launcher(home)
    digest_here = next((each for each in [runner, launched, *runners(home)] if is_intact(home, each)), "")
    packages = folders(home)
    facts = {
        "python": list(sys.version_info[:3]),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "bits": struct.calcsize("P") * 8,
        "machine": platform.machine(),
        "system": platform.system(),
        "libc": libc(),
        "home": home,
        "runner": bool(digest_here) and digest_here == runner,
        "edgerun": digest_here,
        "launched": launched,
        "kept": os.path.lexists(os.path.join(home, "current")),
        "packages": packages,
        "distributions": distributions(packages + sys.path),
        "free_bytes": free(home),
        "clock": int(max(0, time.time())),
    }
    sys.stdout.write(token + json.dumps(facts) + "\n")
    sys.stdout.flush()
    if digest_here and sys.version_info >= (3, 9):
        import runpy

        path = place(home, digest_here)
        sys.argv = [path, "status", "--json", "--home", home]
        runpy.run_path(path, run_name="__main__")


def locate(home: str) -> str:
    """Return the home that the runner would use."""
    path = os.path.expanduser(home) or os.environ.get("EDGERUN_HOME")
    if not path:
        path = os.path.expanduser("~/.edge")
        if os.path.lexists("/var/lib/edge") or path.startswith("~"):
            path = "/var/lib/edge"
    return os.path.abspath(path)


def place(home: str, sha256: str) -> str:
    """Return the path of a runner."""
    return os.path.join(home, "fleet", sha256 + ".pyz")


def launcher(home: str) -> str:
    """Return the runner that `edgerun` in the home starts, or ""."""
    try:
        with open(os.path.join(home, "edgerun")) as stream:
            match = re.search("/fleet/([0-9a-f]{64})[.]pyz", stream.read(65536))
    except (OSError, ValueError):
        return ""
    return match.group(1) if match else ""


def runners(home: str) -> list:
    """Return all runners that are here, the newest first."""
    try:
        names = [name[:-4] for name in os.listdir(os.path.join(home, "fleet")) if name.endswith(".pyz")]
        return sorted(names, key=lambda name: os.path.getmtime(place(home, name)), reverse=True)
    except OSError:
        return []


def is_intact(home: str, sha256: str) -> bool:
    """Return whether a runner is here, unchanged."""
    return bool(sha256) and os.path.isfile(place(home, sha256)) and digest(place(home, sha256)) == sha256


def folders(home: str) -> list:
    """Return the folders of the packages that were sent here."""
    parent = os.path.join(home, "fleet", "packages")
    try:
        with open(os.path.join(parent, "used")) as stream:
            names = stream.read(65536).split()
    except (OSError, ValueError):
        return []
    paths = [os.path.join(parent, name) for name in names if name.isalnum()]
    return [path for path in paths if os.path.isdir(path)]


def distributions(paths: list) -> dict:
    """Return versions by name, from the folders that pip leaves.

    The first on the path wins, as it does for an import.
    """
    versions: dict = {}
    for path in paths:
        try:
            names = sorted(os.listdir(path))
        except OSError:  # an archive, or a folder that is not there
            continue
        for entry in names:
            stem, _, suffix = entry.rpartition(".")
            if suffix in ("dist-info", "egg-info") and "-" in stem and len(versions) < MOST_DISTRIBUTIONS:
                name, version = stem.split("-")[:2]
                versions.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)
    return versions


def libc() -> str:
    """Return `glibc 2.36`, `musl` or ""."""
    try:
        glibc = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        glibc = None
    if glibc:
        return glibc
    try:
        names = os.listdir("/lib")
    except OSError:
        names = []
    return "musl" if any(name.startswith("ld-musl-") for name in names) else ""


def digest(path: str) -> str:
    import hashlib

    with open(path, "rb") as stream:
        return hashlib.sha256(stream.read()).hexdigest()


def free(path: str) -> "int | None":
    """Return the bytes that this user may write on the disk of a folder that need not exist yet."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


if __name__ == "__main__":
    main(*sys.argv[1:4])
