"""Small image folders and zips for the tests."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from edgekit.data import load, parse

CLASSES = ("bee", "cat")


def picture(number, size=(12, 10), mode="RGB", form="PNG"):
    """Bytes of a picture that no other number gives."""
    shape = (size[1], size[0], len(Image.new(mode, (1, 1)).getbands()))
    pixels = np.random.default_rng(number).integers(0, 256, shape, np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels.squeeze(), mode).save(stream, form)
    return stream.getvalue()


def samples(train=30, **more):
    """Names and bytes of a small image folder with `train` pictures per class."""
    found, number = {}, 0
    for split, count in {"train": train, **more}.items():
        for name in CLASSES:
            for index in range(count):
                form = ("PNG", "JPEG")[index % 2]
                suffix = (".png", ".JPG", ".jpeg")[index % 2 + (index % 4 == 3)]
                found[f"{split}/{name}/{index:03d}{suffix}"] = picture(number, form=form)
                number += 1
    return found


def unpacked(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / "pictures" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / "pictures"


def zipped(folder: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(folder / "pictures.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return folder / "pictures.zip"


def data_section(path: Path, **options):
    """A `data` section whose cache lies beside the pictures."""
    common = {"cache": str(path.parent / "cache"), "size": 8, "calibration_samples": 4}
    return {"source": "image_folder", "path": str(path), **common, **options}


def read(path: Path, progress=None, **options):
    return load(parse(data_section(path, **options)), progress)


def contents(data):
    return sorted(x.tobytes() for split in (data.train, data.calibration, data.validation, data.test) for x in split.x)
