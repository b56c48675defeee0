"""`predict --draw`: each answer drawn into its picture, as a PNG file that is complete or absent."""

from __future__ import annotations

import argparse
import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runner import drawing, input_path, inputs
from edgekit.runner.errors import InputError
from edgekit.runner.files import make_folder, write_atomically

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest

PNG = ".png"
LEVEL = 4
"""PNG compression level. A photograph hardly gets smaller beyond it."""


def check(options: argparse.Namespace) -> None:
    """Raise InputError, before a model is opened, if nothing can be written to the given file or folder."""
    out = options.draw
    if not out:
        raise InputError("--draw: names nothing; name a folder, or a file that ends in .png")
    if _is_file(out):
        if options.stream:
            raise InputError(f"--draw {out}: the frames of a stream are many pictures; name a folder")
        folder = os.path.dirname(out) or "."
        if not os.path.isdir(folder):
            raise InputError(f"--draw {out}: there is no folder {folder}; make it, or name another")
    elif os.path.lexists(out.rstrip("/") or out) and not os.path.isdir(out):
        raise InputError(f"--draw {out}: is a file; name a folder, or a file that ends in {PNG}")
    else:
        folder = out
        while not os.path.lexists(folder):
            folder = os.path.dirname(os.path.abspath(folder))
        if not os.path.isdir(folder):
            raise InputError(f"--draw {out}: {folder} is a file; name another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--draw {out}: {folder} cannot be written to; change its permissions, or name another place")


class Drawings:
    """Where a command's pictures are written, and how they are drawn."""

    def __init__(self, manifest: Manifest, out: str, inputs: Sequence[str] = ()) -> None:
        drawing.check_drawable(manifest)
        if _is_file(out) and len(inputs) > 1:
            raise InputError(f"--draw {out}: {len(inputs)} pictures do not fit into one file; name a folder")
        self._manifest, self._out = manifest, out
        self._stamps = {path: _file_stamp(path) for path in inputs}
        self._names = {path: out for path in inputs} if _is_file(out) else _names(inputs, out)
        outputs = {os.path.realpath(name) for name in self._names.values()}
        overwritten = [path for path in inputs if os.path.realpath(path) in outputs]
        if overwritten:
            raise InputError(f"--draw {out}: would overwrite the input {overwritten[0]}; name another place")
        if not _is_file(out):
            try:
                make_folder(Path(os.path.abspath(out)))
            except OSError as error:
                raise _with_advice(error, out) from None
        resize = input_path.find_step(manifest.raw.steps, "resize_picture")
        self._in_sample = resize is not None and resize["fit"] == "crop"
        """Whether to draw into the sample instead of the picture, because the sample is cropped from it."""

    def file(self, path: str, answer: Any) -> str:
        """Draw the answer to a file and return the name of the picture. Raises InputError if the file has changed."""
        if _file_stamp(path) != self._stamps[path]:
            raise InputError(f"{path}: has changed since --draw began; do not change it meanwhile, or name a copy")
        raw = self._manifest.raw
        if self._in_sample or path.lower().endswith(".npy"):
            return self._write(self._names[path], inputs.read_first_sample(path, raw), answer)
        from edgekit.runner.inputs import picture

        return self._write(self._names[path], picture.pixels(path, raw.steps), answer)

    def frame(self, number: int, frame: np.ndarray, sample: np.ndarray, answer: Any) -> str:
        """Draw the answer to a stream's frame, uint8 (height, width, channels), and return the name of the picture."""
        name = os.path.join(self._out, f"frame-{number:06}{PNG}")
        return self._write(name, sample if self._in_sample else frame, answer)

    def _write(self, name: str, picture: np.ndarray, answer: Any) -> str:
        rgb = np.broadcast_to(picture, (*picture.shape[:2], 3))
        drawn = drawing.draw(rgb, answer, self._manifest)
        try:
            write_atomically(Path(name), _png(drawn))
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:  # unlike a full disk, this affects only one picture
                raise InputError(f"--draw: {name}: the name is too long; give the picture a shorter one") from None
            raise _with_advice(error, name) from None
        return name


def _png(picture: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG", compress_level=LEVEL)
    return file.getvalue()


def _with_advice(error: OSError, name: str) -> OSError:
    """Return the same error with the path and advice. It ends the command, because the next picture would fail too."""
    text = f"--draw: cannot be written: {error.strerror or error}; make room, or name another place"
    return OSError(error.errno, text, name)


def _file_stamp(path: str) -> tuple[int, int] | None:
    """Return what identifies a file's content, or None if there is no file."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _is_file(out: str) -> bool:
    return out.lower().endswith(PNG) and not os.path.isdir(out)


def _names(paths: Sequence[str], folder: str) -> dict[str, str]:
    """Return an output path for each input, with its name. Later inputs with the same name are numbered."""
    outputs: dict[str, str] = {}
    used_names: set[str] = set()
    for path in dict.fromkeys(paths):
        stem = os.path.splitext(os.path.basename(path))[0]
        name, number = stem, 1
        while name in used_names:
            number += 1
            name = f"{stem}-{number}"
        used_names.add(name)
        outputs[path] = os.path.join(folder, name + PNG)
    return outputs
