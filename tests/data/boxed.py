"""Small scenes, bright shapes on noise, written as Pascal VOC, COCO and YOLO have them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("blob", "dash", "post")
SIZE = (64, 48)
"""Width and height of a picture."""

Shape = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class Scene:
    """A picture by its name, and the things in it: class, left, top, right, bottom, in pixels from 0."""

    name: str
    split: str
    pixels: np.ndarray
    things: tuple[Shape, ...]


def scenes(count: int, size: tuple[int, int] = SIZE, seed: int = 0) -> list[Scene]:
    """A third is test; every class stands in each picture, besides some more things."""
    random, found = np.random.default_rng(seed), []
    width, height = size
    for number in range(count):
        pixels = random.integers(0, 60, (height, width, 3)).astype(np.uint8)
        things = []
        for kind in (*CLASSES, *(CLASSES[place] for place in random.integers(0, 3, random.integers(0, 3)))):
            wide, high = {"blob": (12, 12), "dash": (16, 6), "post": (6, 16)}[kind]
            left, top = int(random.integers(0, width - wide)), int(random.integers(0, height - high))
            pixels[top : top + high, left : left + wide] = {"blob": 255, "dash": 200, "post": 150}[kind]
            things.append((kind, left, top, left + wide, top + high))
        found.append(Scene(f"scene{number:03}", "test" if number % 3 == 0 else "train", pixels, tuple(things)))
    return found


def voc(home: Path, pictures: list[Scene]) -> None:
    """Annotations, JPEGImages and ImageSets; pictures as PNG, so that no pixel is lost."""
    for folder in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    for scene in pictures:
        Image.fromarray(scene.pixels).save(home / "JPEGImages" / f"{scene.name}.png")
        height, width = scene.pixels.shape[:2]
        things = "".join(
            f"<object><name>{kind}</name><bndbox><xmin>{a + 1}</xmin><ymin>{b + 1}</ymin><xmax>{c}</xmax>"
            f"<ymax>{d}</ymax></bndbox></object>"
            for kind, a, b, c, d in scene.things
        )
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        (home / "Annotations" / f"{scene.name}.xml").write_text(f"<annotation>{size}{things}</annotation>")
    for split in ("train", "test"):
        names = "".join(f"{scene.name}\n" for scene in pictures if scene.split == split)
        (home / "ImageSets/Main" / f"{split}.txt").write_text(names)


def coco(home: Path, pictures: list[Scene]) -> None:
    """One JSON file and one folder of pictures for each split."""
    (home / "annotations").mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        mine = [scene for scene in pictures if scene.split == split]
        (home / f"{split}2017").mkdir(exist_ok=True)
        for scene in mine:
            Image.fromarray(scene.pixels).save(home / f"{split}2017" / f"{scene.name}.png")
        numbered = [(number, thing) for number, scene in enumerate(mine, 10) for thing in scene.things]
        values = {
            "images": [
                {"id": number, "file_name": f"{scene.name}.png", "width": scene.pixels.shape[1],
                 "height": scene.pixels.shape[0]}
                for number, scene in enumerate(mine, 10)
            ],
            "categories": [{"id": 7 * place + 1, "name": kind} for place, kind in enumerate(CLASSES)],
            "annotations": [
                {"id": place, "image_id": number, "category_id": 7 * CLASSES.index(kind) + 1, "iscrowd": 0,
                 "bbox": [a, b, c - a, d - b], "area": (c - a) * (d - b)}
                for place, (number, (kind, a, b, c, d)) in enumerate(numbered)
            ],
        }  # fmt: skip
        (home / "annotations" / f"instances_{split}2017.json").write_text(json.dumps(values))


def yolo(home: Path, pictures: list[Scene]) -> None:
    """images/SPLIT, labels/SPLIT and data.yaml."""
    for scene in pictures:
        height, width = scene.pixels.shape[:2]
        for folder in ("images", "labels"):
            (home / folder / scene.split).mkdir(parents=True, exist_ok=True)
        Image.fromarray(scene.pixels).save(home / "images" / scene.split / f"{scene.name}.png")
        lines = [
            f"{CLASSES.index(kind)} {(a + c) / 2 / width!r} {(b + d) / 2 / height!r} {(c - a) / width!r} "
            f"{(d - b) / height!r}\n"
            for kind, a, b, c, d in scene.things
        ]
        (home / "labels" / scene.split / f"{scene.name}.txt").write_text("".join(lines))
    (home / "data.yaml").write_text(f"train: images/train\nnames: {list(CLASSES)}\n")


WRITERS = {"voc": voc, "coco": coco, "yolo": yolo}
