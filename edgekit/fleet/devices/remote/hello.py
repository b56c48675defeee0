"""What a device is, in one line of JSON behind a token; then `edgerun status --json`, where a runner is here.

Arguments: the token, the home or "", the sha256 of the runner that is preferred, or "". Any other one answers as well.
"""

import json
import os
import platform
import re
import struct
import sys
import time

MOST_DISTRIBUTIONS = 2000
"""So that the answer is no larger than whoever asks will read."""


def main(token: str, home: str, runner: str) -> None:
    if sys.stdout is None:
        sys.exit("edgerun: its login closes standard output, so nothing can be answered; look at its shell's files")
    sys.path[:] = [path for path in sys.path if path]  # not the folder in which the login happens to begin
    home = locate(home)
    launched = launcher(home)
    found = next((each for each in [runner, launched, *runners(home)] if is_intact(home, each)), "")
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
        "runner": bool(found) and found == runner,
        "edgerun": found,
        "launched": launched,
        "kept": os.path.lexists(os.path.join(home, "current")),
        "packages": packages,
        "distributions": distributions(packages + sys.path),
        "free_bytes": free(home),
        "clock": int(max(0, time.time())),
    }
    sys.stdout.write(token + json.dumps(facts) + "\n")
    sys.stdout.flush()
    if found and sys.version_info >= (3, 9):
        import runpy

        path = place(home, found)
        sys.argv = [path, "status", "--json", "--home", home]
        runpy.run_path(path, run_name="__main__")


def locate(given: str) -> str:
    """As the runner finds it."""
    named = os.path.expanduser(given) or os.environ.get("EDGERUN_HOME")
    if not named:
        named = os.path.expanduser("~/.edge")
        if os.path.lexists("/var/lib/edge") or named.startswith("~"):
            named = "/var/lib/edge"
    return os.path.abspath(named)


def place(home: str, sha256: str) -> str:
    """Of a runner."""
    return os.path.join(home, "desk", sha256 + ".pyz")


def launcher(home: str) -> str:
    """The runner that `edgerun` in the home starts."""
    try:
        with open(os.path.join(home, "edgerun")) as stream:
            found = re.search("/desk/([0-9a-f]{64})[.]pyz", stream.read(65536))
    except (OSError, ValueError):
        return ""
    return found.group(1) if found else ""


def runners(home: str) -> list:
    """All that are here, the newest first."""
    try:
        names = [name[:-4] for name in os.listdir(os.path.join(home, "desk")) if name.endswith(".pyz")]
        return sorted(names, key=lambda name: os.path.getmtime(place(home, name)), reverse=True)
    except OSError:
        return []


def is_intact(home: str, sha256: str) -> bool:
    """Whether a runner is here as it was brought."""
    return bool(sha256) and os.path.isfile(place(home, sha256)) and digest(place(home, sha256)) == sha256


def folders(home: str) -> list:
    """Of the packages that were brought here."""
    place = os.path.join(home, "desk", "packages")
    try:
        with open(os.path.join(place, "used")) as stream:
            names = stream.read(65536).split()
    except (OSError, ValueError):
        return []
    found = [os.path.join(place, name) for name in names if name.isalnum()]
    return [path for path in found if os.path.isdir(path)]


def distributions(paths: list) -> dict:
    """Versions by name, off the folders that pip leaves; the first on the path wins, as it does for an import."""
    found: dict = {}
    for path in paths:
        try:
            names = sorted(os.listdir(path))
        except OSError:  # an archive, or a folder that is not there
            continue
        for entry in names:
            stem, _, suffix = entry.rpartition(".")
            if suffix in ("dist-info", "egg-info") and "-" in stem and len(found) < MOST_DISTRIBUTIONS:
                name, version = stem.split("-")[:2]
                found.setdefault(name.lower().replace("_", "-").replace(".", "-"), version)
    return found


def libc() -> str:
    """`glibc 2.36`, `musl` or empty."""
    try:
        found = os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        found = None
    if found:
        return found
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
    """Bytes that this user may write on the disk of a folder that need not be there yet."""
    while not os.path.isdir(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


if __name__ == "__main__":
    main(*sys.argv[1:4])
