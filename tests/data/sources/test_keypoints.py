"""Pictures with keypoints: both formats give the same labels, points move with pictures, and bad files are named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, DataError
from edgekit.data import Data, load, parse
from edgekit.data.box_formats import yolo
from tests.data import posed
from tests.data.posed import NAMES, SKELETON, WRITERS

TASK = "keypoints"
LABEL = "labels/train/pose001.txt"


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    WRITERS["yolo"](tmp_path / "data", posed.pictures(60))
    return options(tmp_path, "yolo", calibration_samples=6)


def options(folder: Path, form: str, **changes: Any) -> dict[str, Any]:
    """The section of a config for `folder`/data."""
    return {
        "source": "keypoints", "path": str(folder / "data"), "annotations": form, "height": 64, "width": 96,
        "calibration_samples": 3, "cache": str(folder / "cache"), **changes,
    }  # fmt: skip


def read(folder: Path, form: str, **changes: Any) -> Data:
    return load(parse(options(folder, form, **changes), TASK))


def labels_by_picture(data: Data) -> dict[bytes, np.ndarray]:
    splits = (data.train, data.calibration, data.validation, data.test)
    return {x.tobytes(): y[1:][y[1:, 0] >= 0] for split in splits for x, y in zip(split.x, split.y, strict=True)}


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_labels_are_those_of_the_pictures(form: str, tmp_path: Path) -> None:
    made = posed.pictures(20)
    WRITERS[form](tmp_path / "data", made)
    data = read(tmp_path, form)
    assert data.keypoints is not None and data.keypoints.names == NAMES
    assert data.keypoints.skeleton == (SKELETON if form == "coco" else ())
    assert data.train.y[0, 0, :5].tolist() == [-1, 0, 0, 96, 64]
    found = labels_by_picture(data)
    assert len(found) == len(made)
    for each in made:
        for row, cross in zip(found[each.pixels.tobytes()], each.crosses, strict=True):
            left, top, right, bottom = cross.box
            share = 0.4 if form == "coco" else 0.53
            expected = [0, *cross.box, share * (right - left) * (bottom - top), 0, *cross.points.ravel()]
            np.testing.assert_allclose(row, expected, atol=1e-3)


def test_keypoints_move_with_a_letterboxed_picture(tmp_path: Path) -> None:
    """96×64 becomes 48×32 in the middle of 48×48."""
    made = posed.pictures(12)
    WRITERS["coco"](tmp_path / "data", made)
    data = read(tmp_path, "coco", width=48, height=48)
    rows = np.concatenate(list(labels_by_picture(data).values()))
    crosses = [cross for each in made for cross in each.crosses]
    points = {tuple(np.round(row[7:], 2)) for row in rows}
    assert points == {
        tuple(np.round((cross.points * [0.5, 0.5, 1] + [0, 8, 0]).ravel().astype(np.float32), 2)) for cross in crosses
    }
    areas = sorted(0.4 * (b - a) * (d - c) / 4 for cross in crosses for a, c, b, d in [cross.box])
    np.testing.assert_allclose(sorted(rows[:, 5]), areas, rtol=1e-4)


def test_a_skeleton_of_the_config_replaces_that_of_the_data(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", posed.pictures(12))
    data = read(tmp_path, "yolo", skeleton=[[0, 4], [1, 2]])
    assert data.keypoints is not None and data.keypoints.skeleton == ((0, 4), (1, 2))
    with pytest.raises(ConfigError, match="data.skeleton: got .0, 5.; the 5 keypoints are counted from 0 to 4"):
        read(tmp_path, "yolo", skeleton=[[0, 5]])


def test_two_columns_have_no_visibility_and_a_point_at_zero_is_not_labelled(tmp_path: Path) -> None:
    posed.yolo(tmp_path / "data", posed.pictures(12), columns=2)
    words = (tmp_path / "data" / LABEL).read_text().splitlines()[0].split()
    (tmp_path / "data" / LABEL).write_text(" ".join([*words[:5], "0", "0", *words[7:]]) + "\n")
    rows = np.concatenate(list(labels_by_picture(read(tmp_path, "yolo")).values()))
    assert set(rows[:, 9::3].ravel()) == {0, 2} and (rows[:, 9::3] == 0).sum() == 1
    assert rows[rows[:, 9] == 0][0, 7:10].tolist() == [0, 0, 0]


def test_seventeen_keypoints_without_names_are_those_of_a_person(tmp_path: Path) -> None:
    posed.yolo(tmp_path / "data", posed.pictures(12))
    for path in (tmp_path / "data/labels").rglob("*.txt"):
        lines = [line.split() for line in path.read_text().splitlines()]
        path.write_text("".join(" ".join([*words, *["0"] * 36]) + "\n" for words in lines))
    (tmp_path / "data/data.yaml").write_text("names: [person]\nkpt_shape: [17, 3]\n")
    data = read(tmp_path, "yolo")
    assert data.keypoints == yolo.PERSON and data.keypoints.names[5] == "left_shoulder"


def test_crowds_and_objects_without_keypoints_are_kept(tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values["annotations"][0]["iscrowd"] = 1
        del values["annotations"][1]["keypoints"], values["annotations"][1]["area"]
        values["categories"].append({"id": 9, "name": "blob"})
        values["annotations"].append({**values["annotations"][2], "id": 99, "category_id": 9})

    WRITERS["coco"](tmp_path / "data", posed.pictures(12))
    edit_coco(tmp_path, change)
    data = read(tmp_path, "coco")
    rows = np.concatenate(list(labels_by_picture(data).values()))
    assert (rows[:, 6] == 1).sum() == 1 and (rows[:, 7:] == 0).all(axis=1).sum() == 1
    assert "left out 1 boxes of categories that have no keypoints" in data.notes


def test_the_same_files_serve_a_detection_of_boxes(tmp_path: Path) -> None:
    for form in WRITERS:
        WRITERS[form](tmp_path / form / "data", posed.pictures(12))
        data = load(parse(options(tmp_path / form, form, source="boxes"), "detection"))
        assert data.keypoints is None and data.train.y.shape[2] == 5 and (data.train.y[:, 1, 0] == 0).all()


def edit_coco(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "data/annotations/person_keypoints_train2017.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _set(key: str, value: Any, part: str = "annotations") -> Callable[[dict[str, Any]], None]:
    return lambda values: values[part][0].update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_set("keypoints", [1, 2, 2]), "2017.json: keypoints are .1, 2, 2.; expected x, y and visibility for each"),
        (_set("keypoints", [1, 2, 3] * 5), "the visibility is 0 .not labelled., 1 .hidden. or 2"),
        (_set("area", -1), "area is -1; expected square pixels"),
        (_set("keypoints", ["a", "a"], "categories"), "keypoints are .'a', 'a'.; give each its own name"),
        (_set("keypoints", "nose", "categories"), "expected a list of names"),
        (_set("skeleton", [[0, 1]], "categories"), "expected pairs of keypoints, counted from 1 to 5"),
        (_set("keypoints", [], "categories"), "none of those with boxes has `keypoints`"),
    ],
)  # fmt: skip
def test_a_bad_coco_file_is_named(change: Callable[[dict[str, Any]], None], words: str, tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path / "data", posed.pictures(12))
    for split in ("train", "test"):
        path = tmp_path / f"data/annotations/person_keypoints_{split}2017.json"
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path, "coco")
    assert "\n" not in str(error.value)


def test_categories_with_other_keypoints_cannot_be_read_together(tmp_path: Path) -> None:
    def change(values: dict[str, Any]) -> None:
        values["categories"].append({"id": 9, "name": "hand", "keypoints": ["thumb"]})
        values["annotations"].append({**values["annotations"][0], "id": 9, "category_id": 9, "keypoints": [1, 1, 2]})

    WRITERS["coco"](tmp_path / "data", posed.pictures(12))
    edit_coco(tmp_path, change)
    with pytest.raises(DataError, match="'hand' has other keypoints than 'cross'"):
        read(tmp_path, "coco")


@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        ("data.yaml", "[5, 3]", "[5, 4]", r"data.yaml: kpt_shape is \[5, 4\]; expected \[keypoints, 3\]"),
        ("data.yaml", "[5, 3]", "5", "kpt_shape is 5; expected"),
        ("data.yaml", "kpt_shape: [5, 3]", "", "data.yaml has no kpt_shape"),
        ("data.yaml", "'centre'", "'left'", "kpt_names is .*; expected 5 different names"),
        (LABEL, "\n", " 0\n", "line 1: got 21 numbers; expected class, .* and 5 keypoints of 3 numbers, 20 in all"),
        (LABEL, " 2 ", " 7 ", "line 1: the visibility of a keypoint is 7"),
        (LABEL, " 2 ", " nan ", "line 1: got .*; keypoints are finite numbers"),
        (LABEL, " 2 ", " x ", "line 1: got .*; keypoints are finite numbers"),
    ],
)
def test_a_bad_yolo_file_is_named(file: str, old: str, new: str, words: str, tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", posed.pictures(12))
    path = tmp_path / "data" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=words) as error:
        read(tmp_path, "yolo")
    assert "\n" not in str(error.value)
