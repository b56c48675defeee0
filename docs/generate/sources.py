"""The data sources side by side: what each reads, of which kind its samples are, its tasks and its splits."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from docs.generate.options import module_of_source
from docs.generate.tables import code, table
from edgekit.core.tasks import TASKS
from edgekit.data import source_names

HEADER = ("source", "what it reads", "kind of sample", "tasks", "splits that it can have")
FOLDERS = "those of its folders: train, validation, test"
ARRAYS = "those of its arrays: train, validation, test"
WORDS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "boxes": (("image",), "those of its lists or folders: train, validation, test"),
    "csv_rows": (("vector",), "those of its files: train, validation, test"),
    "csv_windows": (("window",), FOLDERS),
    "digits": (("image",), "train"),
    "image_folder": (("image",), FOLDERS),
    "instance_masks": (("image",), "those of its lists or folders: train, validation, test"),
    "keypoints": (("image",), "those of its lists or folders: train, validation, test"),
    "masks": (("image",), "those of its lists or folders: train, validation, test"),
    "npz": (("image", "tensors", "vector", "window"), ARRAYS),
    "python": (("image", "tensors", "vector", "window"), ARRAYS),
    "text_folder": (("text",), FOLDERS),
    "text_table": (("text",), "train"),
    "wav_folder": (("audio",), FOLDERS),
    "wav_track": (("audio",), "train"),
    "webdataset": (("audio", "image", "vector"), "those named by its shards: train, validation, test"),
}
"""By source, the kinds of its samples and its splits. The tests of the sources check them."""


def overview() -> str:
    """The table of all sources."""
    return table(HEADER, [row(name) for name in source_names()])


def row(name: str) -> tuple[str, ...]:
    """The row of one source."""
    module = importlib.import_module(module_of_source(name))
    reads = " ".join((module.__doc__ or "").split("\n\n")[0].split())
    served = getattr(module, "TASKS", TASKS)
    kinds, splits = WORDS[name]
    tasks = "all" if set(served) == set(TASKS) else ", ".join(map(code, served))
    return (code(name), reads, ", ".join(map(code, kinds)), tasks, splits)
