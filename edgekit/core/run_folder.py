"""The layout of a run's folder."""

from __future__ import annotations

from pathlib import Path

from edgekit.core.config import STAGES

ORIGIN = "origin"
"""The name of the artifact that a run starts from. It is not a stage."""


def notebook_name(stage: str) -> str:
    """Return the file name of a stage's notebook: `03_prune.ipynb`."""
    return f"{STAGES.index(stage) + 1:02d}_{stage}.ipynb"


def stage_folder(folder: Path, stage: str) -> Path:
    """Return the folder of a stage's artifact.

    The folder of the stage `bundle` is called `bundles`, because users copy files from it.
    """
    return folder / ("bundles" if stage == "bundle" else stage)


def working_folder(folder: Path, stage: str) -> Path:
    """Return the folder in which a stage works until it is sealed."""
    return folder / f".{stage}.partial"


def working_notebook(folder: Path, stage: str) -> Path:
    """Return the path of a notebook while it is being executed."""
    return folder / "notebooks" / f".{stage}.partial.ipynb"


def failed_notebook(folder: Path, stage: str) -> Path:
    """Return the path of the executed notebook of a failed attempt."""
    return (folder / "notebooks" / notebook_name(stage)).with_suffix(".failed.ipynb")
