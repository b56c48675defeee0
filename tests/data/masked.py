"""Small scenes with masks, textured shapes under uneven light, in both layouts; generated, not photographed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ground", "disc", "bar")
SIZE = (64, 48)
"""Width and height of a picture."""
UNKNOWN = 255


@dataclass(frozen=True)
class Scene:
    """A picture by its name, and the class of each of its pixels; around each shape a pixel of none."""

    name: str
    split: str
    pixels: np.ndarray
    mask: np.ndarray


def scenes(count: int, size: tuple[int, int] = SIZE, seed: int = 0) -> list[Scene]:
    """A third is test; every picture has a striped disc, and a checked bar, maybe over it, on grainy ground."""
    random, (width, height), found = np.random.default_rng(seed), size, []
    rows, columns = np.mgrid[:height, :width]
    unit = min(size) / 48
    for number in range(count):
        mask = np.zeros((height, width), np.uint8)
        values = np.full((height, width), 90.0)
        reach, wide, high = random.uniform((7, 12, 5), (12, 22, 9)) * unit
        y, x = random.uniform(reach, (height - reach, width - reach))
        apart = np.hypot(rows - y, columns - x) - reach
        stripes = 150 + 40 * np.sin((rows + columns) * random.uniform(0.8, 1.2))
        _put(mask, values, apart, 1, stripes)
        top, left = random.uniform(1, (height - high - 1, width - wide - 1))
        apart = np.maximum(np.abs(rows - top - high / 2) - high / 2, np.abs(columns - left - wide / 2) - wide / 2)
        checks = 120 + 60 * np.where((rows // 2 + columns // 2) % 2, 1, -1)
        _put(mask, values, apart, 2, checks)
        light = 0.75 + 0.5 * (columns / width if random.random() < 0.5 else rows / height)
        colour = values[..., None] * light[..., None] * random.uniform(0.85, 1.15, 3)
        pixels = np.clip(colour + random.normal(0, 12, colour.shape), 0, 255).astype(np.uint8)
        found.append(Scene(f"scene{number:03}", "test" if number % 3 == 0 else "train", pixels, mask))
    return found


def _put(mask: np.ndarray, values: np.ndarray, apart: np.ndarray, kind: int, texture: np.ndarray) -> None:
    """A shape where `apart`, the distance to its edge in pixels, is below 0."""
    inside = apart < 0
    values[inside] = texture[inside]
    mask[inside] = kind
    mask[(apart >= 0) & (apart < 0.7)] = UNKNOWN


def indexed(mask: np.ndarray) -> Image.Image:
    """As annotation tools write it: indices into a palette."""
    image = Image.fromarray(mask).convert("L")
    drawn = Image.frombytes("P", image.size, mask.tobytes())
    drawn.putpalette([value for index in range(256) for value in (index * 67 % 256, index * 151 % 256, index)])
    return drawn


def folders(home: Path, pictures: list[Scene]) -> None:
    """images/SPLIT, masks/SPLIT and data.yaml; pictures as PNG, so that no pixel is lost."""
    for scene in pictures:
        for folder, image in (("images", Image.fromarray(scene.pixels)), ("masks", indexed(scene.mask))):
            path = home / folder / scene.split / f"{scene.name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path)
    (home / "data.yaml").write_text(f"names: {list(CLASSES)}\n")


def voc(home: Path, pictures: list[Scene]) -> None:
    """JPEGImages, SegmentationClass, ImageSets and classes.txt."""
    for folder in ("JPEGImages", "SegmentationClass", "ImageSets/Segmentation"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for scene in pictures:
        Image.fromarray(scene.pixels).save(home / "JPEGImages" / f"{scene.name}.png")
        indexed(scene.mask).save(home / "SegmentationClass" / f"{scene.name}.png")
    for split in ("train", "test"):
        names = "".join(f"{scene.name}\n" for scene in pictures if scene.split == split)
        (home / "ImageSets/Segmentation" / f"{split}.txt").write_text(names)
    (home / "classes.txt").write_text("\n".join(CLASSES))


WRITERS = {"folders": folders, "voc": voc}
