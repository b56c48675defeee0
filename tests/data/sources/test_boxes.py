"""Pictures with boxes: the same scene in every format gives the same samples and labels, and errors are reported."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.core.errors import DataError
from edgekit.data import Data, box_formats, load, parse
from edgekit.runner import bundle, input_path, inputs
from edgekit.runner.backends import open_backend
from edgekit.runner.boxes import BoxOptions, Decoder, probability
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.cli import main
from edgekit.runner.preprocess import transform
from tests.data import odd_files
from tests.data.boxed import CLASSES, WRITERS, scenes
from tests.runner.conftest import npy
from tests.runner.test_several_outputs import INPUT, ONLY, OUTPUTS, POINTS, expected_outputs, files, images, manifest

TASK = "detection"


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    WRITERS["yolo"](tmp_path / "data", scenes(60))
    return options(tmp_path, "yolo", calibration_samples=6)


def options(folder: Path, form: str, **changes: Any) -> dict[str, Any]:
    """The section of a config for `folder`/data."""
    return {
        "source": "boxes", "path": str(folder / "data"), "annotations": form, "height": 48, "width": 64,
        "calibration_samples": 3, "cache": str(folder / "cache"), **changes,
    }  # fmt: skip


def read(folder: Path, form: str, **changes: Any) -> Data:
    return load(parse(options(folder, form, **changes), TASK))


def rows(data: Data) -> dict[bytes, list[list[float]]]:
    """Of every sample its boxes, sorted."""
    splits = (data.train, data.calibration, data.validation, data.test)
    return {
        x.tobytes(): sorted(y[1:][y[1:, 0] >= 0].tolist())
        for split in splits
        for x, y in zip(split.x, split.y, strict=True)
    }


def test_every_format_has_a_writer_here() -> None:
    assert set(WRITERS) == set(box_formats.NAMES)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_samples_and_boxes_are_those_of_the_scene(form: str, tmp_path: Path) -> None:
    made = scenes(40)
    WRITERS[form](tmp_path / "data", made)
    data = read(tmp_path, form)
    assert data.classes == CLASSES
    assert data.train.y[0, 0].tolist() == [-1, 0, 0, 64, 48]
    expected = {
        scene.pixels.tobytes(): sorted(
            [float(CLASSES.index(kind)), *map(float, sides)] for kind, *sides in scene.things
        )
        for scene in made
    }
    found = rows(data)
    assert set(found) == set(expected)
    for key, boxes in expected.items():
        np.testing.assert_allclose(found[key], boxes, atol=1e-3)
    assert len(data.test) == sum(scene.split == "test" for scene in made)


@pytest.mark.parametrize("form", sorted(WRITERS))
def test_a_zip_is_read_as_the_folder_is(form: str, tmp_path: Path) -> None:
    WRITERS[form](tmp_path / "data", scenes(20))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for path in sorted((tmp_path / "data").rglob("*.*")):
            archive.write(path, Path("wrapped") / path.relative_to(tmp_path / "data"))
    zipped = read(tmp_path, form, path=str(tmp_path / "data.zip"))
    assert rows(zipped) == rows(read(tmp_path, form))


def test_a_letterbox_keeps_proportions_and_moves_boxes_with_them(tmp_path: Path) -> None:
    """64×48 becomes 80×60 in the middle of 80×80, and 32×24 in the middle of 32×40."""
    made = scenes(20)
    WRITERS["coco"](tmp_path / "data", made)
    for size, (left, top, scale) in {(80, 80): (0, 10, 1.25), (32, 40): (0, 8, 0.5)}.items():
        data = read(tmp_path, "coco", width=size[0], height=size[1])
        expected = sorted(
            [float(CLASSES.index(kind)), left + a * scale, top + b * scale, left + c * scale, top + d * scale]
            for scene in made
            for kind, a, b, c, d in scene.things
        )
        np.testing.assert_allclose(sorted(row for boxes in rows(data).values() for row in boxes), expected, atol=1e-3)
        assert not data.train.x[:, :top].any() and not data.train.x[:, -top:].any()
        assert data.train.x[:, top].any()


@pytest.mark.parametrize("fit", ["letterbox", "stretch"])
def test_the_device_reads_a_file_as_training_does_and_finds_the_way_back(fit: str, tmp_path: Path) -> None:
    made = scenes(20, (70, 31))
    WRITERS["yolo"](tmp_path / "data", made)
    data = read(tmp_path, "yolo", fit=fit, width=48, height=64)
    raw = RawSpec("image", (64, 48, 3), "uint8", input_path=data.input_path)
    known = rows(data)
    for scene in made:
        path = tmp_path / "data/images" / scene.split / f"{scene.name}.png"
        [sample] = inputs.samples(str(path), raw)
        assert sample.size == (70, 31)
        place = input_path.picture_transform(sample.size, data.input_path[1])
        back = sorted([kind, *place.to_picture(sides)] for kind, *sides in known[sample.raw.tobytes()])
        expected = sorted([float(CLASSES.index(kind)), *map(float, sides)] for kind, *sides in scene.things)
        np.testing.assert_allclose(back, expected, atol=0.02)


def test_a_picture_that_stands_on_its_side_is_turned_with_its_boxes_as_they_are_seen(tmp_path: Path) -> None:
    """The EXIF tag of a phone: the file is 48×64, and what people drew boxes on is 64×48."""
    made = scenes(20)
    WRITERS["yolo"](tmp_path / "data", made)
    tag = Image.Exif()
    tag[0x0112] = 6
    for path in (tmp_path / "data/images").rglob("*.png"):
        Image.open(path).transpose(Image.Transpose.ROTATE_90).save(path, exif=tag)
    assert rows(read(tmp_path, "yolo")) == {
        key: boxes for key, boxes in rows(read(tmp_path, "yolo", cache=str(tmp_path / "other"))).items()
    }
    expected = sorted(sides for scene in made for sides in ([CLASSES.index(k), *s] for k, *s in scene.things))
    found = sorted(box for boxes in rows(read(tmp_path, "yolo")).values() for box in boxes)
    np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("target", ONLY)
def test_every_file_gets_the_evaluations_own_boxes(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pictures of many sizes, modes and turns, as they lie there: decoded by the evaluation, moved into the file's."""
    odd = odd_pictures(tmp_path / "data")
    data = read(tmp_path, "yolo", height=32, width=48, max_bad_fraction=0.9)
    raw = RawSpec("image", (32, 48, 3), "uint8", input_path=data.input_path)
    content = files(target, tmp_path)
    backend = open_backend(target, content, (INPUT,), OUTPUTS, interpreter=ONLY[target][0])
    samples = {x.tobytes(): x for split in (data.train, data.calibration, data.validation, data.test) for x in split.x}
    options_ = BoxOptions(0.2, 0.5, 100)
    decode = Decoder((32, 48), POINTS, options_)
    golden = {"i.npy": npy(images(2)), "o.npy": npy(expected_outputs(images(2)).astype(np.float32))}
    path = tmp_path / "b.edge.zip"
    bundle.write(path, manifest(target, content, raw=raw, boxes=options_._asdict()), {**content, **golden})
    flags = ("--json", "--no-trial", "--threads", "1", "--interpreter", ONLY[target][0])
    assert main(["predict", str(path), str(tmp_path / "data"), *flags]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["input"] for each in answers} == {str(each) for each in odd}
    found = 0
    for answer in answers:
        [sample] = inputs.samples(answer["input"], raw)
        x = samples[sample.raw.tobytes()]  # what training reads
        scaled = transform.to_layout(transform.apply([{"step": "scale", "factor": 1 / 255}], x[None]), "NCHW")
        boxes = decode(backend.run(scaled)[0])
        place = input_path.picture_transform(sample.size, data.input_path[1])
        assert [each["box"] for each in answer["boxes"]] == [[*place.to_picture(at)] for at in boxes.sides.tolist()]
        assert [each["probability"] for each in answer["boxes"]] == [*map(probability, boxes.logits.tolist())]
        found += len(answer["boxes"])
    assert found > len(answers)


def odd_pictures(home: Path) -> list[Path]:
    """120 of 20×20 to 90×70 pixels, in several modes and formats, some with an EXIF turn; a box in each."""
    random, found = np.random.default_rng(19), []
    (home / "images/train").mkdir(parents=True)
    (home / "labels/train").mkdir(parents=True)
    (home / "data.yaml").write_text("names: [a]")
    for number in range(120):
        form, ending = odd_files.FORMS[number % len(odd_files.FORMS)]
        pixels = random.integers(0, 256, (*random.integers(20, (70, 90)), 3)) * random.uniform(0.2, 1, 3)
        mode = ("RGB", "L")[number % 3 == 0 and form != "WEBP"]
        exif = Image.Exif()
        if number % 4 == 0:
            exif[0x0112] = 1 + number // 4 % 8
        path = home / "images/train" / f"{number:03}.{ending}"
        Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(path, form, exif=exif)
        (home / "labels/train" / f"{number:03}.txt").write_text("0 0.5 0.5 0.5 0.5")
        found.append(path)
    return found


def _voc(change: Callable[[str], str]) -> Callable[[Path], None]:
    def broken(home: Path) -> None:
        for path in (home / "Annotations").glob("*.xml"):
            path.write_text(change(path.read_text()))

    return broken


def _coco(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def broken(home: Path) -> None:
        path = home / "annotations/instances_train2017.json"
        values = json.loads(path.read_text())
        change(values)
        path.write_text(json.dumps(values))

    return broken


def _yolo(line: str) -> Callable[[Path], None]:
    return lambda home: next((home / "labels/train").glob("*.txt")).write_text(line)


BROKEN: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "not XML": ("voc", _voc(lambda text: text[:-9]), "not XML"),
    "no name": ("voc", _voc(lambda text: text.replace("<name>blob</name>", "<name></name>")), "without a name"),
    "no number": ("voc", _voc(lambda text: text.replace("<xmin>", "<xmin>left")), "it must be a number"),
    "no boxes": ("voc", _voc(lambda text: text.split("<object>")[0] + "</annotation>"), "annotations have no box"),
    "outside": ("voc", _voc(lambda text: text.replace("<xmax>", "<xmax>9")), "boxes are empty or outside"),
    "another size": ("voc", _voc(lambda text: text.replace("<width>64", "<width>65")), "annotations are for 65×48"),
    "an entity": ("voc", _voc(lambda text: '<!DOCTYPE a [<!ENTITY b "c">]>' + text), "or it declares entities"),
    "no width": ("voc", _voc(lambda text: text.replace("<width>64", "<width>nan")), "size/width is 'nan'; it must"),
    "endless": ("voc", _voc(lambda text: text.replace("<xmax>", "<xmax>inf<!--").replace("</xmax>", "--></xmax>")),
                "bndbox/xmax is 'inf'; it must be"),
    "an unknown encoding": ("voc", _voc(lambda text: '<?xml version="1.0" encoding="x-y"?>' + text), "not XML"),
    "in two splits": (
        "voc", lambda home: (home / "ImageSets/Main/val.txt").write_text("scene000\n"), "belongs to one split",
    ),
    "no picture": ("voc", lambda home: (home / "JPEGImages/scene001.png").unlink(), "no picture with this name"),
    "not JSON": ("coco", lambda home: (home / "annotations/instances_train2017.json").write_text("{"), "not JSON"),
    "other JSON": ("coco", _coco(lambda values: values.pop("categories")), "not COCO annotations"),
    "a category without a name": (
        "coco", _coco(lambda values: values["annotations"][0].update(category_id=99)), "category_id 99 has no name",
    ),
    "a nameless class": (
        "coco", _coco(lambda values: values["categories"][0].update(name="")), "category 1 is called ''",
    ),
    "a class that is a list": (
        "coco", _coco(lambda values: values["categories"][0].update(name=["a"])), "category 1 is called .'a'.; exp",
    ),
    "three numbers": (
        "coco", _coco(lambda values: values["annotations"][0].update(bbox=[1, 2, 3])), "expected left, top",
    ),
    "no such picture": (
        "coco", _coco(lambda values: values["images"][0].update(file_name="x.png")), "no picture 'x.png'",
    ),
    "a box of no image": (
        "coco", _coco(lambda values: values["annotations"][0].update(image_id=9999)), "image 9999, which",
    ),
    "no objects": ("coco", _coco(lambda values: values["images"].append(3)), "images holds 3; expected objects"),
    "a null": ("coco", _coco(lambda values: values["categories"].append(None)), "categories holds None"),
    "deep JSON": (
        "coco", lambda home: (home / "annotations/instances_train2017.json").write_text("[" * 200_000), "not JSON",
    ),
    "no side": (
        "coco", _coco(lambda values: values["annotations"][0].update(bbox=[float("nan"), 2, 3, 4])), "bbox is .nan, 2",
    ),
    "a huge side": (
        "coco", _coco(lambda values: values["annotations"][0].update(bbox=[10**400, 2, 3, 4])), "expected left, top",
    ),
    "words": ("yolo", _yolo("blob 0.5 0.5 0.1 0.1\n"), "expected class, centre x"),
    "four numbers": ("yolo", _yolo("0 0.5 0.5 0.1\n"), "expected class, centre x"),
    "NaN": ("yolo", _yolo("\n0 0.5 nan 0.1 0.1\n"), r"labels/train/scene\d+.txt, line 2: got 'nan'; a box has finite"),
    "endless of YOLO": ("yolo", _yolo("0 0.5 0.5 0.1 1e999\n"), "line 1: got '1e999'; a box has finite"),
    "a class too high": ("yolo", _yolo("3 0.5 0.5 0.1 0.1\n"), "class 3 has no name"),
    "no names": ("yolo", lambda home: (home / "data.yaml").unlink(), "the classes have no names"),
    "names twice": ("yolo", lambda home: (home / "data.yaml").write_text("names: [a, a, b]"), "is listed twice"),
    "one name": ("yolo", lambda home: (home / "data.yaml").write_text("names: blob"), "names is 'blob'; expected a"),
    "null": ("yolo", lambda home: (home / "data.yaml").write_text("names:"), "names is None; expected a list of words"),
    "a number": ("yolo", lambda home: (home / "data.yaml").write_text("names: [1, 2]"), "put quotes around numbers"),
    "a gap": ("yolo", lambda home: (home / "data.yaml").write_text("names: {0: a, 5: b}"), "has the keys .0, 5.; exp"),
    "mixed keys": ("yolo", lambda home: (home / "data.yaml").write_text("names: {0: a, x: b}"), "has the keys .0, 'x'"),
    "deep YAML": ("yolo", lambda home: (home / "data.yaml").write_text("names: " + "[" * 5000), "has no key `names`"),
    "YAML without names": ("yolo", lambda home: (home / "data.yaml").write_text("nc: 3"), "has no key `names`"),
}  # fmt: skip


@pytest.mark.usefixtures("no_recursion_limit")
@pytest.mark.parametrize("fault", BROKEN)
def test_invalid_data_are_refused_in_one_line_that_says_where(fault: str, tmp_path: Path) -> None:
    form, change, message = BROKEN[fault]
    WRITERS[form](tmp_path / "data", scenes(20))
    change(tmp_path / "data")
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, form)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("*/record.json")) if (tmp_path / "cache").exists() else True


def test_a_few_bad_boxes_are_skipped_and_named(tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path / "data", scenes(60))
    _coco(lambda values: values["annotations"][0].update(bbox=[60, 40, 30, 30]))(tmp_path / "data")
    data = read(tmp_path, "coco")
    assert any("skipped 1 boxes, empty or outside: train2017/" in note for note in data.notes)


def test_a_picture_with_more_boxes_than_asked_is_refused(tmp_path: Path) -> None:
    WRITERS["voc"](tmp_path / "data", scenes(20))
    with pytest.raises(DataError, match="but data.most_boxes is 3; raise it"):
        read(tmp_path, "voc", most_boxes=3)


def test_a_limit_keeps_the_splits_in_proportion(tmp_path: Path) -> None:
    WRITERS["voc"](tmp_path / "data", scenes(60))
    data = read(tmp_path, "voc", limit=20)
    assert len(data.test) == 10
    assert len(data.train) + len(data.calibration) + len(data.validation) == 20


def test_masks_beside_the_boxes_of_voc_are_no_pictures(tmp_path: Path) -> None:
    made = scenes(20)
    WRITERS["voc"](tmp_path / "data", made)
    (tmp_path / "data/SegmentationClass").mkdir()
    Image.new("P", (64, 48)).save(tmp_path / f"data/SegmentationClass/{made[0].name}.png")
    assert len(rows(read(tmp_path, "voc"))) == 20


def two_splits(home: Path, file_name: str = "{number:04}.png") -> None:
    """train/0000.png and val/0000.png are other pictures; the boxes of train lie left, those of val right."""
    (home / "annotations").mkdir(parents=True)
    for split, left, count in (("train", 4, 40), ("val", 30, 10)):
        images = []
        (home / split).mkdir()
        for number in range(count):
            pixels = np.random.default_rng((number, left)).integers(0, 256, (48, 64, 3), np.uint8)
            Image.fromarray(pixels).save(home / split / f"{number:04}.png")
            name = file_name.format(split=split, number=number)
            images.append({"id": number, "file_name": name, "width": 64, "height": 48})
        boxes = [{"image_id": number, "category_id": 1, "bbox": [left, 9, 20, 20]} for number in range(count)]
        values = {"images": images, "annotations": boxes, "categories": [{"id": 1, "name": "a"}]}
        (home / f"annotations/instances_{split}.json").write_text(json.dumps(values))


@pytest.mark.parametrize("file_name", ["{number:04}.png", "{split}/{number:04}.png"])
def test_a_coco_picture_is_the_one_of_its_own_split(file_name: str, tmp_path: Path) -> None:
    two_splits(tmp_path / "data", file_name)
    data = read(tmp_path, "coco")
    known = {np.asarray(Image.open(path)).tobytes(): path.parent.name for path in (tmp_path / "data").glob("*/*.png")}
    assert [known[x.tobytes()] for x in data.validation.x] == ["val"] * 10
    assert {known[x.tobytes()] for x in data.train.x} == {"train"}
    assert set(data.validation.y[:, 1, 1]) == {30} and set(data.train.y[:, 1, 1]) == {4}


@pytest.mark.parametrize(
    ("file_name", "message"),
    [
        ("old/{number:04}.png", "'old/0000.png' is in another folder, train/0000.png or val/0000.png; write that"),
        ("{number:04}.png", "boxes.json: '0000.png' may be train/0000.png or val/0000.png; write its folder"),
    ],
)
def test_a_coco_picture_that_may_be_several_is_refused(file_name: str, message: str, tmp_path: Path) -> None:
    two_splits(tmp_path / "data", file_name)
    (tmp_path / "data/annotations/instances_val.json").unlink()
    (tmp_path / "data/annotations/instances_train.json").rename(tmp_path / "data/annotations/boxes.json")
    with pytest.raises(DataError, match=message):
        read(tmp_path, "coco")


def test_a_picture_that_was_moved_is_found_where_one_alone_has_its_name(tmp_path: Path) -> None:
    WRITERS["coco"](tmp_path / "data", scenes(24))
    for path in (tmp_path / "data").rglob("*.json"):
        values = json.loads(path.read_text())
        for each in values["images"]:
            each["file_name"] = f"elsewhere/{Path(each['file_name']).name}"
        path.write_text(json.dumps(values))
    WRITERS["coco"](tmp_path / "b/data", scenes(24))
    assert rows(read(tmp_path, "coco")) == rows(read(tmp_path / "b", "coco"))


def test_a_coco_picture_is_listed_once(tmp_path: Path) -> None:
    two_splits(tmp_path / "data")
    path = tmp_path / "data/annotations/instances_train.json"
    path.with_name("keypoints_train.json").write_bytes(path.read_bytes())
    with pytest.raises(DataError, match=r"listed in annotations/instances_train.json and again in .*keypoints_train"):
        read(tmp_path, "coco")
    path.with_name("keypoints_train.json").unlink()
    values = json.loads(path.read_text())
    values["images"][1]["id"] = 0
    path.write_text(json.dumps(values))
    with pytest.raises(DataError, match="two images have the id 0"):
        read(tmp_path, "coco")


def test_other_json_files_are_skipped_and_reported(tmp_path: Path) -> None:
    two_splits(tmp_path / "data")
    (tmp_path / "data/export.json").write_text('{"images": 3}')
    captions = {"images": [{"id": 1, "file_name": "0000.png"}], "annotations": [{"image_id": 1, "caption": "a cell"}]}
    (tmp_path / "data/list.json").write_text(json.dumps(captions))
    (tmp_path / "data/.cache").mkdir()
    (tmp_path / "data/.cache/instances_train.json").write_text("{")
    data = read(tmp_path, "coco")
    assert any("2 .json files that are not COCO annotations; the first is export.json" in note for note in data.notes)


def test_yolo_splits_are_recognised_by_folders_in_any_case_and_with_years(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(40))
    for folder in ("images", "labels"):
        (tmp_path / "data" / folder / "test").rename(tmp_path / "data" / folder / "Test2017")
    assert len(read(tmp_path, "yolo").test) == 14


@pytest.mark.parametrize(
    ("folder", "message"),
    [("testing", "images/testing: 'testing' is not the name of a split, did you mean \"test\""),
     ("holdout", "images/holdout: 'holdout' is not the name of a split, allowed here: test, train")],
)  # fmt: skip
def test_a_folder_beside_train_that_is_no_split_is_refused(folder: str, message: str, tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(20))
    for kind in ("images", "labels"):
        (tmp_path / "data" / kind / "test").rename(tmp_path / "data" / kind / folder)
    with pytest.raises(DataError, match=message):
        read(tmp_path, "yolo")


def test_linked_folders_are_reported(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(20))
    (tmp_path / "data/images/test").rename(tmp_path / "elsewhere")
    (tmp_path / "data/images/test").symlink_to(tmp_path / "elsewhere")
    assert "skipped 1 linked folders: images/test" in read(tmp_path, "yolo").notes
    (tmp_path / "data/images").rename(tmp_path / "images")
    (tmp_path / "data/images").symlink_to(tmp_path / "images")
    with pytest.raises(DataError, match="check data.annotations; skipped 1 linked folders: images$"):
        read(tmp_path, "yolo")


@pytest.mark.parametrize("layout", ["mirrored", "beside"])
def test_yolo_labels_and_pictures_without_each_other_are_reported(layout: str, tmp_path: Path) -> None:
    home = tmp_path / "data"
    WRITERS["yolo"](home, scenes(40))
    if layout == "beside":
        for path in (home / "labels").rglob("*.txt"):
            path.rename(home / "images" / path.relative_to(home / "labels"))
    labels = home / ("labels" if layout == "mirrored" else "images")
    (home / "classes.txt").write_text("\n".join(CLASSES))
    (home / "README.txt").write_text("by hand\n")
    assert not any("without a" in note for note in read(tmp_path, "yolo").notes)
    (home / "images/train/scene001.png").unlink()
    (labels / "test/scene003.txt").unlink()
    (labels / "train/scene004.txt").unlink()
    notes = [note.split(";") for note in read(tmp_path, "yolo").notes if "without a" in note]
    assert notes == [
        ["1 label files without a picture", f" the first is {labels.name}/train/scene001.txt"],
        ["2 pictures without a label file, which count as empty", " the first is images/test/scene003.png"],
    ]


def test_labels_whose_suffix_is_in_capitals_are_read(tmp_path: Path) -> None:
    made = scenes(20)
    WRITERS["yolo"](tmp_path / "data", made)
    for path in (tmp_path / "data/labels").rglob("*.txt"):
        path.rename(path.with_suffix(".TXT"))
    assert sum(map(len, rows(read(tmp_path, "yolo")).values())) == sum(len(scene.things) for scene in made)


def test_a_limit_leaves_no_split_empty(tmp_path: Path) -> None:
    two_splits(tmp_path / "data")
    path = tmp_path / "data/annotations/instances_val.json"
    values = json.loads(path.read_text())
    values["images"], values["annotations"] = values["images"][:1], values["annotations"][:1]
    path.write_text(json.dumps(values))
    data = read(tmp_path, "coco", limit=10)
    assert data.validation.y[:, 1, 1].tolist() == [30]


@pytest.mark.parametrize(
    ("form", "member"),
    [("yolo", "data.yaml"), ("yolo", "labels/train/scene001.txt"), ("voc", "Annotations/scene001.xml"),
     ("voc", "ImageSets/Main/train.txt"), ("coco", "annotations/instances_train2017.json")],
)  # fmt: skip
def test_a_damaged_member_of_a_zip_is_one_line(form: str, member: str, tmp_path: Path) -> None:
    WRITERS[form](tmp_path / "data", scenes(10))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for path in sorted((tmp_path / "data").rglob("*.*")):
            archive.write(path, path.relative_to(tmp_path / "data"))
    content = (tmp_path / "data" / member).read_bytes()
    whole = (tmp_path / "data.zip").read_bytes()
    assert whole.count(content) == 1
    (tmp_path / "data.zip").write_bytes(whole.replace(content, content[::-1]))
    with pytest.raises(DataError, match=f"{member}: cannot be read \\(Bad CRC-32 .*; repair or remove it"):
        read(tmp_path, form, path=str(tmp_path / "data.zip"))


def test_a_pipe_or_a_broken_link_is_one_line(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(20))
    label = tmp_path / "data/labels/train/scene001.txt"
    label.unlink()
    label.symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"scene001.txt: cannot be read \(No such file"):
        read(tmp_path, "yolo")
    label.unlink()
    os.mkfifo(label)
    with pytest.raises(DataError, match=r"scene001.txt: cannot be read \(is not a regular file"):
        read(tmp_path, "yolo")


def test_trainval_is_train_where_no_list_is_narrower_and_other_tasks_lists_do_not_matter(tmp_path: Path) -> None:
    made = scenes(30)
    WRITERS["voc"](tmp_path / "data", made)
    lists = tmp_path / "data/ImageSets/Main"
    (lists / "train.txt").rename(lists / "trainval.txt")
    names = (lists / "trainval.txt").read_text().split()
    (lists / "val.txt").write_bytes("\n".join(names[:4]).encode("utf-8-sig"))
    (lists.parent / "Segmentation").mkdir()
    (lists.parent / "Segmentation/val.txt").write_text("\n".join(names))
    data = read(tmp_path, "voc")
    assert [len(each) for each in (data.validation, data.test)] == [4, 10]
    assert len(data.train) + len(data.calibration) == 16


@pytest.mark.parametrize("pictures", ["", "images/"])
def test_folders_of_voc_are_splits_where_no_list_is(pictures: str, tmp_path: Path) -> None:
    """As Roboflow exports it: train, valid and test, each with pictures and XML; names may stand in two of them."""
    made = scenes(30)
    WRITERS["voc"](tmp_path / "plain", made)
    sizes = {"train": 16, "valid": 8, "test": 6}
    folders = [split for split, count in sizes.items() for _ in range(count)]
    for number, (scene, split) in enumerate(zip(made, folders, strict=True)):
        home, name = tmp_path / "data" / split, f"{number % 8:03}" if split != "train" else f"{number:03}"
        (home / pictures).mkdir(parents=True, exist_ok=True)
        (tmp_path / f"plain/JPEGImages/{scene.name}.png").rename(home / pictures / f"{name}.png")
        (home / (pictures and "annotations")).mkdir(exist_ok=True)
        (tmp_path / f"plain/Annotations/{scene.name}.xml").rename(home / (pictures and "annotations") / f"{name}.xml")
    data = read(tmp_path, "voc")
    assert (len(data.validation), len(data.test)) == (8, 6)
    assert len(data.train) + len(data.calibration) == 16


@pytest.mark.parametrize(
    "line", ["data/obj_train_data/{name}.png", "/home/me/set/obj_train_data/{name}.png", "{name}.png"]
)
def test_lists_of_yolo_are_splits(line: str, tmp_path: Path) -> None:
    """As CVAT and Darknet write them: obj.names, train.txt and val.txt, all pictures in one folder."""
    made = scenes(30)
    WRITERS["yolo"](tmp_path / "plain", made)
    home = tmp_path / "data"
    (home / "obj_train_data").mkdir(parents=True)
    for path in [*(tmp_path / "plain/images").rglob("*.png"), *(tmp_path / "plain/labels").rglob("*.txt")]:
        path.rename(home / "obj_train_data" / path.name)
    (home / "obj.names").write_text("\n".join(CLASSES))
    names = [line.format(name=scene.name) for scene in made]
    (home / "train.txt").write_text("\n".join(names[:18]) + "\n")
    (home / "valid.txt").write_text("\n".join(names[18:26]) + "\n")
    data = read(tmp_path, "yolo")
    assert len(data.validation) == 8
    assert "left out 4 pictures that are in no split's list; the first is obj_train_data/scene026.png" in data.notes
    (home / "test.txt").write_text(names[0])
    with pytest.raises(DataError, match=r"listed for test as well|listed for train as well"):
        read(tmp_path, "yolo")


@pytest.mark.parametrize("title", ["cells", "blob"])
def test_a_coco_category_without_boxes_is_left_out_and_named(title: str, tmp_path: Path) -> None:
    """Every export of Roboflow has one, with the id 0; it may be called like a class."""
    WRITERS["coco"](tmp_path / "data", scenes(30))
    for path in (tmp_path / "data/annotations").glob("*.json"):
        values = json.loads(path.read_text())
        values["categories"].insert(0, {"id": 0, "name": title, "supercategory": "none"})
        path.write_text(json.dumps(values))
    data = read(tmp_path, "coco")
    assert data.classes == CLASSES
    assert f"left out 1 categories that no box has: {title}" in data.notes


def test_a_yolo_class_without_boxes_is_left_out_and_named(tmp_path: Path) -> None:
    """Its number stays in the label files, so the classes behind it keep theirs."""
    WRITERS["yolo"](tmp_path / "data", scenes(30))
    (tmp_path / "data/data.yaml").write_text(f"train: images/train\nnames: {['cells', *CLASSES]}\n")
    for path in (tmp_path / "data/labels").rglob("*.txt"):
        lines = [line.split(" ", 1) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{int(kind) + 1} {place}\n" for kind, place in lines))
    data = read(tmp_path, "yolo")
    assert data.classes == CLASSES
    assert "left out 1 classes that no box has: cells" in data.notes


def test_no_more_boxes_can_be_asked_than_a_hundred(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(10))
    (tmp_path / "data/labels/train/scene001.txt").write_text("0 0.5 0.5 0.2 0.2\n" * 101)
    with pytest.raises(DataError, match="101 boxes, but a detector can learn at most 100; remove"):
        read(tmp_path, "yolo")


def test_a_mark_before_the_classes_is_no_part_of_their_names(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(20))
    (tmp_path / "data/data.yaml").unlink()
    (tmp_path / "data/classes.txt").write_bytes("\n".join(CLASSES).encode("utf-8-sig"))
    assert read(tmp_path, "yolo").classes == CLASSES
