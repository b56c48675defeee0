"""Moves the bundles of an earlier run aside, so that `bundles/` is empty if the last run missed its budget."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from edgekit.core import artifacts, run_folder
from edgekit.runner.files import sync_folder

EARLIER_BUNDLES = "earlier-bundles"
"""The folder inside a run's folder that holds the earlier bundles until a run succeeds."""
BUNDLE_STAGE = "bundle"


def is_settled(folder: Path, met: bool) -> bool:
    """Return whether `recover` has nothing to move or remove.

    `met` says whether a variant of the run met the budget.
    """
    return not (folder / EARLIER_BUNDLES if met else run_folder.stage_folder(folder, BUNDLE_STAGE)).exists()


def recover(folder: Path, met: bool) -> Path | None:
    """Move the bundles of an earlier run aside, and return the folder that they are in now, or None if there are none.

    If the run `met` its budget, there are new bundles, so those that were moved aside earlier are removed instead.

    The bundles are moved by a single rename. If the process is killed, the next run can therefore repeat this.
    """
    earlier, bundles = folder / EARLIER_BUNDLES, run_folder.stage_folder(folder, BUNDLE_STAGE)
    if met:
        _remove(earlier)
        return None
    artifacts.recover(run_folder.working_folder(folder, BUNDLE_STAGE), bundles, None)
    if not bundles.exists():
        return None
    _remove(earlier)
    os.replace(bundles, earlier)
    sync_folder(folder)
    return earlier


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
