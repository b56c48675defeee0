"""Arrays in one .npz file, with the names documented in `edgekit.data.arrays`. Pickled members are refused."""

from __future__ import annotations

import zipfile
import zlib
from typing import Literal

from pydantic import Field

from edgekit.core.errors import DataError
from edgekit.core.paths import PathText, existing_path, file_stamp
from edgekit.data.types import Pools, ProgressCallback, SourceConfig


class NpzConfig(SourceConfig):
    """Options of an .npz file."""

    source: Literal["npz"] = "npz"
    path: PathText = Field(description="path of the .npz file")


def identity(config: NpzConfig) -> list[object]:
    """Return the stamp of the file."""
    return file_stamp(existing_path(config.path, "data.path"))


def read(config: NpzConfig, progress: ProgressCallback | None = None) -> Pools:
    """Return pools as `edgekit.data.arrays` describes them."""
    import numpy as np

    from edgekit.data import arrays

    path = existing_path(config.path, "data.path")
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path.name}: a single array (.npy); save named arrays with np.savez")
        with archive:
            # Members with other names are not opened, because `pools_from_arrays` refuses them.
            valid_names = {
                name for name in archive.files if name in arrays.ARRAY_NAMES or name.startswith(arrays.TENSOR_PREFIXES)
            }
            arrays_by_name = {name: archive[name] if name in valid_names else None for name in archive.files}
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path.name}: cannot be read as .npz without unpickling ({error}); write plain arrays with np.savez"
        ) from None
    return arrays.pools_from_arrays(arrays_by_name, path.name, config.task)
