"""Minimal wheels, written by hand."""

from __future__ import annotations

import zipfile
from pathlib import Path


def wheel(folder: Path, name: str, tag: str = "py3-none-any", needs: tuple[str, ...] = (), **files: str) -> Path:
    """`name` is NAME-VERSION; `files` are modules by name."""
    path = folder / f"{name}-{tag}.whl"
    metadata = f"Metadata-Version: 2.1\nName: {name.split('-')[0]}\nVersion: {name.split('-')[1]}\n"
    metadata += "".join(f"Requires-Dist: {each}\n" for each in needs)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.dist-info/METADATA", metadata)
        archive.writestr(f"{name}.dist-info/WHEEL", f"Wheel-Version: 1.0\nTag: {tag}\n")
        for module, text in files.items():
            archive.writestr(module.replace("__", "/") + ".py", text)
    return path
