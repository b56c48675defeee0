"""edgekit without one of the steps that make it safe: the negative control of the suites."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from edgekit.core import artifacts


def apply(step: str) -> None:
    """Leave `step` out in this process: "fsync", "replace" (files written in place), "publish" (folders, too)."""
    {"": _nothing, "fsync": _no_fsync, "replace": _no_replace, "publish": _no_publish}[step]()


def _nothing() -> None:
    pass


def _no_fsync() -> None:
    os.fsync = lambda handle: None


def _no_replace() -> None:
    def in_place(path: Path, data: bytes) -> None:
        with open(path, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())

    for module in [module for module in sys.modules.values() if getattr(module, "write_atomically", None)]:
        module.write_atomically = in_place  # type: ignore[attr-defined]


def _no_publish() -> None:
    def copied(finished: Path, final: Path) -> Any:
        shutil.copytree(finished, final, dirs_exist_ok=True)
        shutil.rmtree(finished)
        return artifacts.load(final)

    artifacts.publish = copied
