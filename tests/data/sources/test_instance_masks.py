"""Pictures with masks of objects: both formats give the same labels, masks move with pictures, bad files are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import DataError
from edgekit.core.tasks import instance_masks
from edgekit.data import Data, load, object_masks, parse
from edgekit.runner.instance_masks import compressed, run_lengths
from tests.data import diamonds
from tests.data.diamonds import CLASSES, SIZE, WRITERS, Diamond, edit_coco

TASK = "instance_masks"
LABEL = "labels/train/gem001.txt"


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    WRITERS["yolo"](tmp_path / "data", diamonds.pictures(60))
    return options(tmp_path, "yolo", calibration_samples=6)


def options(folder: Path, form: str, **changes: Any) -> dict[str, Any]:
    """The section of a config for `folder`/data."""
    return {
        "source": "instance_masks", "path": str(folder / "data"), "annotations": form, "height": 64, "width": 96,
        "calibration_samples": 3, "cache": str(folder / "cache"), **changes,
    }  # fmt: skip


def read(folder: Path, form: str, **changes: Any) -> Data:
    return load(parse(options(folder, form, **changes), TASK))


def labels_by_picture(data: Data) -> dict[bytes, instance_masks.Labels]:
    splits = (data.train, data.calibration, data.validation, data.test)
    return {
        x.tobytes(): instance_masks.read_labels(y) for split in splits for x, y in zip(split.x, split.y, strict=True)
    }


def check_close(mask: np.ndarray, diamond: Diamond, expected: np.ndarray) -> None:
    """The pixels are those of the diamond; only where a centre lies on an edge may they differ."""
    assert (mask != expected).sum() <= 2, (diamond, (mask != expected).sum())


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_labels_are_those_of_the_pictures(form: str, tmp_path: Path) -> None:
    made = diamonds.pictures(20)
    WRITERS[form](tmp_path / "data", made)
    data = read(tmp_path, form)
    assert data.classes == CLASSES and data.train.y[0, 0, :5].tolist() == [-1, 0, 0, *SIZE]
    assert data.train.y.shape[1] == 3, "no rows for objects that no picture has"
    found = labels_by_picture(data)
    assert len(found) == len(made)
    for each in made:
        labels = found[each.pixels.tobytes()]
        for row, mask, diamond in zip(labels.rows, labels.masks, each.diamonds, strict=True):
            np.testing.assert_allclose(row[:6], [diamond.kind, *diamond.box, 0], atol=1e-3)
            check_close(mask, diamond, diamond.mask(*SIZE))


def test_masks_move_with_a_letterboxed_picture(tmp_path: Path) -> None:
    """96×64 becomes 48×32 in the middle of 48×48."""
    made = diamonds.pictures(12)
    WRITERS["coco"](tmp_path / "data", made)
    found = [each for labels in labels_by_picture(read(tmp_path, "coco", width=48, height=48)).values() for each in
             labels.masks]  # fmt: skip
    assert len(found) == 24
    for shown in made:
        for each in shown.diamonds:
            small = Diamond(each.kind, each.x / 2, each.y / 2 + 8, each.across / 2, each.down / 2)
            expected = small.mask(48, 48)
            assert min((mask != expected).sum() for mask in found) <= 2


@pytest.mark.parametrize("is_compressed", [False, True])
def test_run_lengths_give_the_masks_of_polygons(is_compressed: bool, tmp_path: Path) -> None:
    made = diamonds.pictures(12)
    WRITERS["coco"](tmp_path / "data", made)
    train = [diamond for each in made if each.split == "train" for diamond in each.diamonds]

    def change(values: dict[str, Any]) -> None:
        for entry, diamond in zip(values["annotations"], train, strict=True):
            pixels = diamond.mask(*SIZE)
            plain = {"size": list(pixels.shape), "counts": run_lengths(pixels)}
            entry["segmentation"] = compressed(pixels) if is_compressed else plain
        values["annotations"][0]["iscrowd"] = 1

    edit_coco(tmp_path / "data", change)
    found = labels_by_picture(read(tmp_path, "coco"))
    for each in made:
        labels = found[each.pixels.tobytes()]
        for mask, diamond in zip(labels.masks, each.diamonds, strict=True):
            check_close(mask, diamond, diamond.mask(*SIZE))
    assert sum(int(labels.is_crowd.sum()) for labels in found.values()) == 1
    small = read(tmp_path, "coco", width=48, height=48)
    areas = [labels.masks.sum() for labels in labels_by_picture(small).values()]
    expected = [sum(diamond.mask(*SIZE).sum() for diamond in each.diamonds) / 4 for each in made]
    np.testing.assert_allclose(sorted(areas), sorted(expected), rtol=0.1)


def test_masks_of_polygons_are_nearly_those_of_coco() -> None:
    from pycocotools import mask as coco

    random = np.random.default_rng(2)
    for _ in range(30):
        angles = np.sort(random.uniform(0, 2 * np.pi, 9))
        points = np.stack([np.cos(angles), np.sin(angles)], axis=1) * random.uniform(15, 40, (9, 1)) + (50, 45)
        found = object_masks.from_polygons([points], (90, 100))
        expected = coco.decode(coco.frPyObjects([points.ravel().tolist()], 90, 100))[..., 0].astype(bool)
        assert (found & expected).sum() > 0.9 * (found | expected).sum() > 100


def test_compressed_run_lengths_are_those_of_coco() -> None:
    from pycocotools import mask as coco

    random = np.random.default_rng(3)
    for size in ((1, 1), (1, 9), (9, 1), (31, 17), (400, 640)):
        for share in (0, 0.001, 0.5, 1):
            pixels = np.asfortranarray((random.random(size) < share).repeat(2, axis=0))
            found, expected = compressed(pixels), coco.encode(pixels.view(np.uint8))
            assert found["size"] == expected["size"] and found["counts"].encode() == expected["counts"]
            assert object_masks.decompressed(found["counts"]) == run_lengths(pixels)


def test_the_same_files_serve_a_detection_of_boxes(tmp_path: Path) -> None:
    made = diamonds.pictures(12)
    for form in WRITERS:
        WRITERS[form](tmp_path / form / "data", made)
        data = load(parse(options(tmp_path / form, form, source="boxes"), "detection"))
        rows = data.train.y[:, 1:][data.train.y[:, 1:, 0] >= 0]
        assert rows.shape[1] == 5
        boxes = np.array([each.box for shown in made for each in shown.diamonds])
        assert all(np.abs(boxes - row[1:]).max(axis=1).min() < 1e-3 for row in rows)


def test_an_object_without_a_pixel_in_the_sample_is_left_out(tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        left, top, width, _ = values["annotations"][0]["bbox"]
        values["annotations"][0]["segmentation"] = [[left, top, left + width, top, left + width / 2, top + 0.01]]

    WRITERS["coco"](tmp_path / "data", diamonds.pictures(12))
    edit_coco(tmp_path / "data", change)
    data = read(tmp_path, "coco", max_bad_fraction=0.5)
    assert sum(len(labels.rows) for labels in labels_by_picture(data).values()) == 23
    assert any("gem, whose mask has no pixel in the sample" in note for note in data.notes), data.notes


def _set(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["annotations"][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("segmentation", []), r"2017.json: segmentation is \[\]; expected polygons"),
        (_set("segmentation", None), "segmentation is None; expected polygons, or an object with counts"),
        (_set("segmentation", [[1, 2, 3, 4]]), r"a polygon is \[1, 2, 3, 4\]; expected x and y of three points"),
        (_set("segmentation", [[1, 2, 3, 4, 5, "a"]]), "a polygon is"),
        (_set("segmentation", {"size": [64, 96], "counts": [5, -1]}), "expected whole numbers from 0, or a text"),
        (_set("segmentation", {"size": [64, 96]}), "counts are None; expected whole numbers"),
        (_set("segmentation", {"size": [64, 96], "counts": "é"}), "'é' does not belong to run lengths; export the"),
        (_set("segmentation", {"size": [64, 96], "counts": "o"}), "ends within a number; export the masks again"),
        (_set("segmentation", {"size": [64, 96], "counts": [5, 6]}), "have the sum 11; it has 6144 pixels"),
    ],
)  # fmt: skip
def test_a_bad_coco_file_is_named(change: Callable[[dict[str, Any]], None], words: str, tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path / "data", diamonds.pictures(12))
    edit_coco(tmp_path / "data", change)
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path, "coco")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0 0.1 0.1 0.5 0.1 0.5 0.5 0.1", "line 1: got 8 numbers; a polygon is the class, and x and y of its points"),
        ("0 0.1 0.1 0.5 nan 0.5 0.5", "line 1: got 'nan'; a box has finite numbers"),
        ("0 0.1 0.1 0.5 x 0.5 0.5", "line 1: got .*; expected class, centre x, .* or class and polygon"),
        ("7 0.1 0.1 0.5 0.1 0.5 0.5", "line 1: class 7 has no name; 2 classes are named"),
        ("0 0.5 0.5 0.2 0.2", "gem001.txt: an object of 'gem' has a box and no polygon; export polygons"),
    ],
)
def test_a_bad_yolo_file_is_named(line: str, words: str, tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", diamonds.pictures(12))
    (tmp_path / "data" / LABEL).write_text(f"{line}\n")
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path, "yolo")
    assert "\n" not in str(error.value)
