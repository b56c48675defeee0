"""Unpack wheels that were sent here, each into a folder of its own, and record which ones are used from now on.

Arguments: the home, then the sha256 of each wheel that is used. Wheels that are unpacked already are left unchanged.
"""

import os
import shutil
import sys
import zipfile


def main(home: str, wheels: list) -> None:
    parent = os.path.join(home, "fleet")
    packages = os.path.join(parent, "packages")
    if not os.path.isdir(packages):
        os.mkdir(packages, 0o700)
    for sha256 in wheels:
        target = os.path.join(packages, sha256[:16])
        archive = os.path.join(parent, sha256 + ".whl")
        if not os.path.isdir(target):
            unpack(archive, target)
        if os.path.exists(archive):
            os.unlink(archive)
    temporary = os.path.join(packages, ".used." + str(os.getpid()))
    with open(temporary, "w") as stream:
        stream.write("".join(sha256[:16] + "\n" for sha256 in wheels))
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, os.path.join(packages, "used"))


def unpack(archive: str, target: str) -> None:
    """Unpack a wheel. The folder gets its name only when it is complete."""
    temporary = target + ".tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    with zipfile.ZipFile(archive) as source:
        source.extractall(temporary)
    for name in os.listdir(temporary):
        if name.endswith(".data"):
            for kind in ("purelib", "platlib"):
                merge(os.path.join(temporary, name, kind), temporary)
    os.sync()
    os.rename(temporary, target)


def merge(source: str, target: str) -> None:
    for name in os.listdir(source) if os.path.isdir(source) else ():
        shutil.move(os.path.join(source, name), os.path.join(target, name))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except (OSError, zipfile.BadZipFile) as error:
        sys.stderr.write("edgerun: packages: " + str(error) + "\n")
        sys.exit(7)
