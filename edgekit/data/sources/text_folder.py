"""Texts in UTF-8 in a folder or a zip, laid out as split/class/*.txt, as token ids (tokens,) int32.

The vocabulary is the user's `tokenizer.json`, or it is built from the train split. It is stored in the bundle, so that
the device makes the same ids, with the same code. All samples are in memory, and each takes 256 bytes for 64 tokens.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from edgekit.core.errors import DataError
from edgekit.core.hashing import digest
from edgekit.core.paths import PathText, existing_path, file_stamps
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
    """Return the stamps of the zip or of every file of the folder, and the identity of the vocabulary."""
    files = digest(file_stamps(existing_path(config.path, "data.path")))
    return [files, *vocabulary_identity(config)]


def read(config: TextFolderConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools of (n, tokens) int32."""
    from edgekit.data import archives, folder_layout, texts

    path = existing_path(config.path, "data.path")
    with archives.FolderArchive(path) if path.is_dir() else archives.ZipArchive(path) as source:
        layout = folder_layout.parse_layout(source.listing, path.name, folder_layout.TEXTS)
        total, done = sum(map(len, layout.names.values())), 0
        texts_by_split = {}
        for split, names in layout.names.items():
            contents = []
            for name in names:
                contents.append(texts.decode_text(name, _content(source, name)))
                done += 1
                if progress:
                    progress(done, total)
            texts_by_split[split] = texts.SplitTexts(contents, names, layout.labels[split])
    return texts.text_pools(texts_by_split, layout.classes, config, layout.notes)


def _content(source: FolderArchive | ZipArchive, name: str) -> bytes:
    try:
        return source.read(name)
    except (OSError, ValueError, NotImplementedError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{name}: cannot be read ({error}); copy it again") from None
