"""Bundles of an earlier run, out of the way: where the last run missed its budget, nothing lies in `bundles/`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edgekit.core import artifacts, run_folder
from edgekit.runner.files import sync_folder

EARLIER_BUNDLES = "earlier-bundles"
"""Where they lie in a run's folder, until a run succeeds."""
BUNDLE_STAGE = "bundle"


def is_settled(folder: Path, met: bool) -> bool:
    """Whether nothing is left to do here; `met`: whether the run's verdict is that a variant met the budget."""
    return not (folder / EARLIER_BUNDLES if met else run_folder.stage_folder(folder, BUNDLE_STAGE)).exists()


def recover(folder: Path, met: bool) -> Path | None:
    """Move the bundles of an earlier run aside, or, where there are new ones, remove those; where they were moved to.

    Killed at any moment it is done again, by the next run: the bundles move by one rename, after room was made.
    """
    aside, bundles = folder / EARLIER_BUNDLES, run_folder.stage_folder(folder, BUNDLE_STAGE)
    if met:
        _remove(aside)
        return None
    artifacts.recover(run_folder.working_folder(folder, BUNDLE_STAGE), bundles, None)
    if not bundles.exists():
        return None
    _remove(aside)
    os.replace(bundles, aside)
    sync_folder(folder)
    return aside


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
