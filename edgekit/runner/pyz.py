"""Builds `edgerun.pyz`, the runner and its server in one file: the same sources, the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from itertools import chain
from pathlib import Path

from edgekit.runner.bundle.archive import REGULAR_FILE
from edgekit.runner.files import write_atomically

NAME = "edgerun.pyz"
EPOCH = (1980, 1, 1, 0, 0, 0)
UNIX = 3
SHEBANG = b"#!/usr/bin/env python3\n"
PACKAGE = Path(__file__).resolve().parent
START = PACKAGE / "_start.py"
SERVER = PACKAGE.parent / "serve"


def sources() -> dict[str, Path]:
    """The files of the archive by their names in it, but for its `__main__.py`, which is made of `_start.py`."""
    root = PACKAGE.parent.parent
    folders = (SERVER.glob(each) for each in ("*.py", "tracing/*.py", "watch/*.py"))
    paths = [PACKAGE.parent / "__init__.py", *PACKAGE.rglob("*.py"), *chain.from_iterable(folders)]
    paths += [SERVER / "protocol_buffers" / name for name in ("__init__.py", "descriptors.py")]
    return {path.relative_to(root).as_posix(): path for path in paths}


def build(path: str | os.PathLike[str]) -> str:
    """Write the archive, executable, and return its sha256."""
    files = {name: source.read_bytes() for name, source in sources().items()}
    digest = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()
    files["__main__.py"] = (
        START.read_text(encoding="utf-8").replace('DIGEST = ""', f'DIGEST = "{digest[:16]}"').encode()
    )
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = UNIX
            entry.external_attr = REGULAR_FILE
            archive.writestr(entry, files[name])
    target = Path(path)
    write_atomically(target, buffer.getvalue())
    target.chmod(0o755)
    return hashlib.sha256(buffer.getvalue()).hexdigest()
