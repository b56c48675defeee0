"""`predict --coco`: objects in all pictures as COCO results, in a JSON file that is complete or absent."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.runner import input_path
from edgekit.runner.bundle.manifest_rules import BOX_TASKS
from edgekit.runner.errors import InputError
from edgekit.runner.files import write_atomically

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


def check(options: argparse.Namespace) -> None:
    """Raise InputError, before a model is opened, if the file cannot be written."""
    out = options.coco
    if not out or os.path.isdir(out):
        raise InputError(f"--coco {out}: is not a file; name one, such as results.json")
    if options.stream:
        raise InputError(f"--coco {out}: the frames of a stream have no names; give pictures instead of --stream")
    folder = os.path.dirname(out) or "."
    if not os.path.isdir(folder):
        raise InputError(f"--coco {out}: there is no folder {folder}; make it, or name another")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--coco {out}: {folder} cannot be written to; change its permissions, or name another place")


class CocoResults:
    """The results of a command, and the file for them.

    `image_id` is the number that a picture's file is named after, or else the name of the file. `category_id` is the
    position of the label in the bundle, from 1.
    """

    def __init__(self, manifest: Manifest, out: str, paths: Sequence[str]) -> None:
        if manifest.task not in BOX_TASKS:
            raise InputError(f"--coco: COCO results hold boxes, but the task of the bundle is {manifest.task}")
        resize = input_path.find_step(manifest.raw.steps, "resize_picture")
        if resize is not None and resize["fit"] == "crop":
            raise InputError(
                "--coco: the bundle crops pictures, so its boxes are not in the pixels of the picture; use --json"
            )
        if any(os.path.realpath(path) == os.path.realpath(out) for path in paths):
            raise InputError(f"--coco {out}: is one of the inputs; name another file")
        self._out = out
        self._categories = {label: number for number, label in enumerate(manifest.labels, 1)}
        self._images = {path: _image_id(path) for path in paths}
        owners: dict[int | str, str] = {}
        for path, image in self._images.items():
            if image in owners:
                raise InputError(
                    f"--coco: {owners[image]} and {path} have the same image_id, {image}; give them different names"
                )
            owners[image] = path
        self._results: dict[str, list[dict[str, Any]]] = {}

    def add(self, path: str, answer: Any) -> None:
        """Add the boxes of a `Detection`, in pixels of the picture. A picture that is named twice counts once.

        Each keypoint becomes x, y and the probability that it is visible. A mask is run-length encoded.
        """
        self._results[path] = [
            {
                "image_id": self._images[path],
                "category_id": self._categories[each.label],
                "bbox": _bbox(each.box),
                "score": each.probability,
                **_more(each),
            }
            for each in answer.boxes
        ]

    def write(self) -> None:
        """Write the file. An existing one is replaced."""
        results = [each for of_picture in self._results.values() for each in of_picture]
        try:
            write_atomically(Path(self._out), json.dumps(results, allow_nan=False).encode() + b"\n")
        except OSError as error:
            text = f"--coco: cannot be written: {error.strerror or error}; make room, or name another place"
            raise OSError(error.errno, text, self._out) from None


def _bbox(sides: Sequence[float]) -> list[float]:
    """Return left, top, width and height; the width or height of a box whose sides are in the wrong order is 0."""
    left, top, right, bottom = sides
    return [left, top, max(0.0, right - left), max(0.0, bottom - top)]


def _more(box: Any) -> dict[str, Any]:
    """Return what an object has besides its box: keypoints or a mask."""
    if points := getattr(box, "keypoints", None):
        return {"keypoints": [value for point in points.values() for value in point]}
    return {"segmentation": box.to_dict()["segmentation"]} if hasattr(box, "mask_arguments") else {}


def _image_id(path: str) -> int | str:
    """Return the number that a file is named after, as in COCO, or its name."""
    name = os.path.basename(path)
    stem = os.path.splitext(name)[0]
    return int(stem) if stem.isascii() and stem.isdecimal() else name
