"""Build `edgerun.pyz`: the runner, the device package and the server in one file. Equal sources give equal bytes.

`NAME.eim` is the same file with a bundle in it, for clients of Edge Impulse.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import zipfile
from pathlib import Path

from edgekit.device.eim import MEMBER
from edgekit.runner.bundle.archive import REGULAR_FILE
from edgekit.runner.files import write_atomically

NAME = "edgerun.pyz"
EPOCH = (1980, 1, 1, 0, 0, 0)
UNIX = 3
SHEBANG = b"#!/usr/bin/env python3\n"
EDGEKIT = Path(__file__).resolve().parent.parent
START = EDGEKIT / "runner" / "_start.py"
ENTRY = 'if __name__ == "__main__":\n'
"""The line of `_start.py` behind which the program begins."""
SMALL = ("__init__.py", "runner/**/*.py")
WHOLE = (
    *SMALL,
    "device/**/*.py",
    "serve/*.py",
    "serve/protocol_buffers/__init__.py",
    "serve/protocol_buffers/descriptors.py",
)


def sources(small: bool = False) -> dict[str, Path]:
    """Return the files of the archive by their names in it.

    `__main__.py` is missing, because it is made from `_start.py`; so is this module, which needs the files themselves.
    """
    paths = {path for pattern in (SMALL if small else WHOLE) for path in EDGEKIT.glob(pattern)} - {
        Path(__file__).resolve()
    }
    return {path.relative_to(EDGEKIT.parent).as_posix(): path for path in sorted(paths)}


def build(path: str | os.PathLike[str], small: bool = False, bundle: bytes = b"") -> str:
    """Write the executable archive and return its SHA-256.

    With `small`, it contains only the runner. With the bytes of a `bundle`, it contains that bundle, and runs
    `edgerun eim` with it.
    """
    files = {name: source.read_bytes() for name, source in sources(small).items()}
    digest = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()
    start = START.read_text(encoding="utf-8").replace('DIGEST = ""', f'DIGEST = "{digest[:16]}"')
    if bundle:
        start = start.replace(ENTRY, f'{ENTRY}    sys.argv[1:1] = ["eim", sys.path[0]]\n', 1)
        files[MEMBER] = bundle
    files["__main__.py"] = start.encode()
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_STORED if name == MEMBER else zipfile.ZIP_DEFLATED
            entry.create_system = UNIX
            entry.external_attr = REGULAR_FILE
            archive.writestr(entry, files[name])
    target = Path(path)
    write_atomically(target, buffer.getvalue())
    target.chmod(0o755)
    return hashlib.sha256(buffer.getvalue()).hexdigest()


def main() -> None:
    """Run `python -m edgekit.device.pyz PATH [--small]`."""
    parser = argparse.ArgumentParser("edgekit.device.pyz", description="Build the runner as one file.")
    parser.add_argument("path", metavar="PATH", nargs="?", default=NAME, help=f"the file to write (default: {NAME})")
    parser.add_argument("--small", action="store_true", help="only the part that loads a bundle and predicts")
    options = parser.parse_args()
    try:
        print(f"{build(options.path, options.small)}  {options.path}")
    except OSError as error:
        parser.exit(7, f"{options.path}: cannot be written ({error.strerror}); name a file in a folder that exists\n")


if __name__ == "__main__":
    main()
