"""Builds `edgerun.pyz`, the runner in one file: the same sources, the same bytes."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

from edgekit.runner.bundle import EPOCH, REGULAR_FILE, UNIX
from edgekit.runner.files import write_atomically

SHEBANG = b"#!/usr/bin/env python3\n"
MAIN = b"import sys\n\nfrom edgekit.runner.cli import main\n\nsys.exit(main())\n"
PACKAGE = Path(__file__).resolve().parent


def build(path: str | os.PathLike[str]) -> str:
    """Write the archive, executable, and return its sha256."""
    root = PACKAGE.parent.parent
    sources = [PACKAGE.parent / "__init__.py", *PACKAGE.rglob("*.py")]
    files = {source.relative_to(root).as_posix(): source.read_bytes() for source in sources}
    files["__main__.py"] = MAIN
    buffer = io.BytesIO()
    buffer.write(SHEBANG)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = UNIX
            entry.external_attr = REGULAR_FILE
            archive.writestr(entry, files[name])
    target = Path(path)
    write_atomically(target, buffer.getvalue())
    target.chmod(0o755)
    return hashlib.sha256(buffer.getvalue()).hexdigest()
