"""Where things lie in a run's folder."""

from __future__ import annotations

from pathlib import Path

from edgekit.core.config import STAGES

ORIGIN = "origin"
"""The artifact that a run starts from; it is no stage."""


def notebook_name(stage: str) -> str:
    """`03_prune.ipynb`."""
    return f"{STAGES.index(stage) + 1:02d}_{stage}.ipynb"


def stage_folder(folder: Path, stage: str) -> Path:
    """Where a stage's artifact lies in a run's folder; that of `bundle` is what people copy from: `bundles`."""
    return folder / ("bundles" if stage == "bundle" else stage)


def working_folder(folder: Path, stage: str) -> Path:
    """Where a stage works until it is sealed."""
    return folder / f".{stage}.partial"


def working_notebook(folder: Path, stage: str) -> Path:
    """The executed copy while it is being executed."""
    return folder / "notebooks" / f".{stage}.partial.ipynb"


def failed_notebook(folder: Path, stage: str) -> Path:
    """The executed copy of an attempt that failed."""
    return (folder / "notebooks" / notebook_name(stage)).with_suffix(".failed.ipynb")
