"""Data handed to a process of this machine: a folder with what says what they are, and their arrays.

Arrays in memory are written once and mapped by every reader. Those that look into a mapped file go by their place.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.data import mapped
from edgekit.data.types import Data, Split

_FILE = "data.json"
_SPLITS = ("train", "calibration", "validation")
_ARRAYS = ("x", "y", "groups", "starts")
_FACTS = (
    "classes",
    "kind",
    "digest",
    "notes",
    "sample_rate_hz",
    "columns",
    "input_path",
    "task",
    "background",
    "tensors",
)
_TUPLES = ("classes", "notes", "columns", "input_path", "tensors")


def write(data: Data, folder: Path) -> None:
    """Everything but the test split, which no training sees."""
    folder.mkdir()
    arrays = {
        f"{split}_{name}": _written(getattr(getattr(data, split), name), folder / f"{split}_{name}.npy")
        for split in _SPLITS
        for name in _ARRAYS
    }
    members = {name: base64.b64encode(content).decode() for name, content in data.members.items()}
    facts = {name: getattr(data, name) for name in _FACTS}
    (folder / _FILE).write_text(json.dumps({"facts": facts, "members": members, "arrays": arrays}), encoding="utf-8")


def read(folder: Path) -> Data:
    """The data that were written there, without a test split."""
    found: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    facts: dict[str, Any] = {
        name: tuple(value) if name in _TUPLES and value is not None else value for name, value in found["facts"].items()
    }
    splits: dict[str, Any] = {
        split: Split(*(_read(found["arrays"][f"{split}_{name}"], folder / f"{split}_{name}.npy") for name in _ARRAYS))
        for split in _SPLITS
    }
    members = {name: base64.b64decode(content) for name, content in found["members"].items()}
    return Data(**splits, **facts, members=members)


def _written(x: np.ndarray | None, path: Path) -> Any:
    """Where the array is: None, its place in a mapped file, or `path`, where it is now."""
    if x is None:
        return None
    if (place := mapped.place(x)) is not None:
        return place
    np.save(path, x, allow_pickle=False)
    return "here"


def _read(where: Any, path: Path) -> Any:
    if where is None:
        return None
    return np.load(path, mmap_mode="r", allow_pickle=False) if where == "here" else mapped.reopened(*where)
