"""Texts in UTF-8 in a folder or a zip, laid out as split/class/*.txt, as token ids (tokens,) int32.

The vocabulary is a `tokenizer.json` of the user's, or it is made of the train split. It travels in the bundle, and the
device makes the ids by the same code. All are held in memory: 256 bytes for 64 tokens.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.data.paths import PathText, existing_path, file_stamps
from edgekit.data.texts import TextSourceConfig, vocabulary_identity
from edgekit.data.types import Pools, ProgressCallback

if TYPE_CHECKING:
    from edgekit.data.archives import FolderArchive, ZipArchive

TASKS = ("classification", "embedding")


class TextFolderConfig(TextSourceConfig):
    """Options of a folder of texts."""

    source: Literal["text_folder"] = "text_folder"
    path: PathText = Field(description="folder or .zip with texts as SPLIT/CLASS/*.txt")


def identity(config: TextFolderConfig) -> list[object]:
    """The zip, or every file of the folder, by what the file system says of it; and the vocabulary."""
    files = digest(file_stamps(existing_path(config.path, "data.path")))
    return [files, *vocabulary_identity(config)]


def read(config: TextFolderConfig, progress: ProgressCallback | None = None) -> Pools:
    """Pools of (n, tokens) int32."""
    from edgekit.data import archives, folder_layout, texts

    path = existing_path(config.path, "data.path")
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        plan = folder_layout.parse_layout(source.listing(), path.name, folder_layout.TEXTS)
        total, done = sum(map(len, plan.names.values())), 0
        given = {}
        for split, names in plan.names.items():
            found = []
            for name in names:
                found.append(texts.decode_text(name, _content(source, name)))
                done += 1
                if progress:
                    progress(done, total)
            given[split] = texts.SplitTexts(found, names, plan.labels[split])
    return texts.text_pools(given, plan.classes, config, plan.notes)


def _content(source: FolderArchive | ZipArchive, name: str) -> bytes:
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be read ({error}); copy it again") from None
