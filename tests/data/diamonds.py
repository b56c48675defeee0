"""Small pictures of diamonds, annotated with masks as COCO and YOLO-seg have them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.data import posed

SIZE = (96, 64)
"""Width and height of a picture."""
CLASSES = ("gem", "kite")


@dataclass(frozen=True)
class Diamond:
    """A diamond around x, y that reaches so far across and down, in pixels."""

    kind: int
    x: float
    y: float
    across: float
    down: float

    @property
    def corners(self) -> np.ndarray:
        """(4, 2)."""
        ends = [(0, -self.down), (self.across, 0), (0, self.down), (-self.across, 0)]
        return np.array(ends) + np.array([self.x, self.y])

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        return self.x - self.across, self.y - self.down, self.x + self.across, self.y + self.down

    def mask(self, width: int, height: int) -> np.ndarray:
        """The pixels (height, width) whose centre is inside."""
        y, x = np.mgrid[:height, :width] + 0.5
        return np.abs(x - self.x) / self.across + np.abs(y - self.y) / self.down < 1


@dataclass(frozen=True)
class Shown:
    """A picture by its name, and the diamonds in it."""

    name: str
    split: str
    pixels: np.ndarray
    diamonds: tuple[Diamond, ...]


def fixed_diamonds() -> tuple[Diamond, Diamond]:
    """The diamonds that all pictures of `pictures(…, fixed=True)` have."""
    return Diamond(0, 24.3, 24.2, 17.1, 14.4), Diamond(1, 68.6, 36.7, 18.3, 21.2)


def pictures(count: int, seed: int = 0, *, fixed: bool = False) -> list[Shown]:
    """A third is test; every picture has two diamonds side by side, or always the same two."""
    random, made = np.random.default_rng(seed), []
    width, height = SIZE
    for number in range(count):
        pixels = random.integers(0, 60, (height, width, 3)).astype(np.uint8)
        diamonds = tuple(
            Diamond(kind, *random.uniform((low + 20, 20), (low + 28, 44)), *random.uniform(8, 18, 2))
            for kind, low in enumerate((0, 48))
        )
        diamonds = fixed_diamonds() if fixed else diamonds
        for each in diamonds:
            pixels[each.mask(width, height)] = ((255, 120, 0), (0, 200, 255))[each.kind]
        made.append(Shown(f"gem{number:03}", "test" if number % 3 == 0 else "train", pixels, diamonds))
    return made


def coco(home: Path, drawn: list[Shown]) -> None:
    """COCO's instances, with a polygon for each diamond."""
    categories = [{"id": 3 + kind, "name": name} for kind, name in enumerate(CLASSES)]

    def annotate(each: Shown) -> list[dict[str, Any]]:
        return [
            {"category_id": 3 + diamond.kind, "bbox": [left, top, right - left, bottom - top],
             "area": (right - left) * (bottom - top) / 2, "segmentation": [diamond.corners.ravel().tolist()]}
            for diamond in each.diamonds
            for left, top, right, bottom in [diamond.box]
        ]  # fmt: skip

    posed.write_coco(home, "instances", drawn, categories, annotate)


def edit_coco(home: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the annotations of train."""
    path = home / "annotations/instances_train2017.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def yolo(home: Path, drawn: list[Shown]) -> None:
    """images/SPLIT, labels/SPLIT and data.yaml."""
    for each in drawn:
        for folder in ("images", "labels"):
            (home / folder / each.split).mkdir(parents=True, exist_ok=True)
        Image.fromarray(each.pixels).save(home / "images" / each.split / f"{each.name}.png")
        lines = [
            " ".join(map(repr, [diamond.kind, *(diamond.corners / SIZE).ravel().tolist()])) + "\n"
            for diamond in each.diamonds
        ]
        (home / "labels" / each.split / f"{each.name}.txt").write_text("".join(lines))
    (home / "data.yaml").write_text(f"train: images/train\nnames: {list(CLASSES)}\n")


WRITERS = {"coco": coco, "yolo": yolo}
