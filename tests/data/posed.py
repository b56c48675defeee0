"""Small pictures of crosses with five keypoints, annotated as COCO and YOLO-pose have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = (96, 64)
"""Width and height of a picture."""
CLASSES = ("cross",)
NAMES = ("centre", "left", "top", "right", "bottom")
SKELETON = ((0, 1), (0, 2), (0, 3), (0, 4))
REACH = (12, 9)
"""How far the ends of a cross are from its centre, across and down, at most."""


@dataclass(frozen=True)
class Cross:
    """A cross with its keypoints (5, 3): x, y and visibility, in pixels."""

    points: np.ndarray

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom."""
        _, left, top, right, bottom = self.points[:, :2].tolist()
        return left[0], top[1], right[0] + 1, bottom[1] + 1


@dataclass(frozen=True)
class Posed:
    """A picture by its name, and the crosses in it."""

    name: str
    split: str
    pixels: np.ndarray
    crosses: tuple[Cross, ...]


def fixed_crosses() -> tuple[Cross, Cross]:
    """The crosses that all pictures of `pictures(…, fixed=True)` have."""
    return _cross(24, 20, 10, 7), _cross(68, 44, 9, 6)


def _cross(x: int, y: int, across: int, down: int, seen: Sequence[int] = (2, 2, 2, 2, 2)) -> Cross:
    ends = [(x, y), (x - across, y), (x, y - down), (x + across, y), (x, y + down)]
    return Cross(np.column_stack([ends, seen]).astype(np.float64))


def _draw(pixels: np.ndarray, cross: Cross) -> None:
    (x, y), left, top, right, bottom = cross.points[:, :2].astype(int)
    pixels[y - 1 : y + 2, left[0] : right[0] + 1] = (255, 120, 0)
    pixels[top[1] : bottom[1] + 1, x - 1 : x + 2] = (0, 200, 255)


def pictures(count: int, size: tuple[int, int] = SIZE, seed: int = 0, *, fixed: bool = False) -> list[Posed]:
    """A third is test; every picture has one or two crosses that do not overlap, or always the same two."""
    random, made = np.random.default_rng(seed), []
    width, height = size
    for number in range(count):
        pixels = random.integers(0, 60, (height, width, 3)).astype(np.uint8)
        crosses = []
        halves = [(0, width // 2), (width // 2, width)]
        for low, high in halves if random.random() < 0.5 else [halves[int(random.integers(2))]]:
            x = int(random.integers(low + REACH[0], high - REACH[0]))
            y = int(random.integers(REACH[1], height - REACH[1]))
            across, down = int(random.integers(8, REACH[0])), int(random.integers(5, REACH[1]))
            crosses.append(_cross(x, y, across, down, random.choice([1, 2], len(NAMES), p=[0.1, 0.9])))
        crosses = list(fixed_crosses()) if fixed else crosses
        for cross in crosses:
            _draw(pixels, cross)
        made.append(Posed(f"pose{number:03}", "test" if number % 3 == 0 else "train", pixels, tuple(crosses)))
    return made


def write_coco(
    home: Path,
    stem: str,
    drawn: Sequence[Any],
    categories: Sequence[dict[str, Any]],
    annotate: Callable[[Any], Sequence[dict[str, Any]]],
) -> None:
    """One JSON file and one folder of pictures for each split.

    `annotate` returns what an annotation of each object of a picture has besides its number and that of its picture.
    """
    (home / "annotations").mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        mine = [each for each in drawn if each.split == split]
        (home / f"{split}2017").mkdir(exist_ok=True)
        for each in mine:
            Image.fromarray(each.pixels).save(home / f"{split}2017" / f"{each.name}.png")
        objects = [{"image_id": number, "iscrowd": 0, **values}
                   for number, each in enumerate(mine, 10) for values in annotate(each)]  # fmt: skip
        values = {
            "images": [
                {"id": number, "file_name": f"{each.name}.png", "width": each.pixels.shape[1],
                 "height": each.pixels.shape[0]}
                for number, each in enumerate(mine, 10)
            ],
            "categories": categories,
            "annotations": [{"id": place, **each} for place, each in enumerate(objects)],
        }  # fmt: skip
        (home / "annotations" / f"{stem}_{split}2017.json").write_text(json.dumps(values))


def coco(home: Path, drawn: list[Posed]) -> None:
    """COCO's person keypoints; the skeleton is counted from 1."""
    category = {"id": 3, "name": CLASSES[0], "keypoints": list(NAMES),
                "skeleton": [[start + 1, end + 1] for start, end in SKELETON]}  # fmt: skip

    def annotate(each: Posed) -> list[dict[str, Any]]:
        return [
            {"category_id": 3, "bbox": [left, top, right - left, bottom - top],
             "area": 0.4 * (right - left) * (bottom - top), "keypoints": cross.points.ravel().tolist(),
             "num_keypoints": len(NAMES)}
            for cross in each.crosses
            for left, top, right, bottom in [cross.box]
        ]  # fmt: skip

    write_coco(home, "person_keypoints", drawn, [category], annotate)


def yolo(home: Path, drawn: list[Posed], columns: int = 3, more: str = f"kpt_names: {{0: {list(NAMES)}}}\n") -> None:
    """images/SPLIT, labels/SPLIT and data.yaml with `kpt_shape`."""
    for each in drawn:
        height, width = each.pixels.shape[:2]
        for folder in ("images", "labels"):
            (home / folder / each.split).mkdir(parents=True, exist_ok=True)
        Image.fromarray(each.pixels).save(home / "images" / each.split / f"{each.name}.png")
        lines = []
        for cross in each.crosses:
            left, top, right, bottom = cross.box
            box = (
                (left + right) / 2 / width,
                (top + bottom) / 2 / height,
                (right - left) / width,
                (bottom - top) / height,
            )
            points = [(x / width, y / height, int(seen))[:columns] for x, y, seen in cross.points.tolist()]
            lines.append(" ".join(map(repr, [0, *box, *(value for point in points for value in point)])) + "\n")
        (home / "labels" / each.split / f"{each.name}.txt").write_text("".join(lines))
    flips = [0, 3, 2, 1, 4]
    (home / "data.yaml").write_text(
        f"train: images/train\nnames: {list(CLASSES)}\nkpt_shape: [{len(NAMES)}, {columns}]\nflip_idx: {flips}\n{more}"
    )


WRITERS = {"coco": coco, "yolo": yolo}
