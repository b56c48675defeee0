"""`edgekit init` on pictures with boxes: every format is found by what lies there, and half a layout is one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.cli.init.annotation_inspection import MAX_PIXELS, sample_size
from edgekit.cli.init.source_detection import detect_source
from edgekit.core.tasks import detection
from edgekit.data import load
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.workbook.plan import load_plan
from tests.cli.test_init import edgekit, write_config
from tests.data.boxed import CLASSES, WRITERS, scenes
from tests.data.pictures import samples, unpacked
from tests.data.sources.test_wav_folder import folder as sounds


@pytest.mark.parametrize("form", sorted(WRITERS))
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "zip"])
def test_each_format_is_recognised_and_its_config_trains(form: str, packed: bool, tmp_path: Path) -> None:
    WRITERS[form](tmp_path / "data", scenes(45))
    data = "data"
    if packed:
        data = Path(shutil.make_archive(str(tmp_path / "scenes"), "zip", tmp_path / "data")).name
        shutil.rmtree(tmp_path / "data")
    values = write_config("--data", tmp_path / data, out=tmp_path)
    section = values["data"]
    assert values["task"] == "detection"
    assert (section["source"], section["annotations"], section["path"]) == ("boxes", form, data)
    assert (section["height"], section["width"], section["channels"]) == (48, 64, 3)
    assert "validation_fraction" in section and "test_fraction" not in section
    plan = load_plan(tmp_path / "mine.yaml")
    result = load(plan.data)
    assert result.classes == CLASSES and values["profile"]["batch_size"] <= len(result.train)
    counts = [
        sum(each.numel() for each in store.build(
            spec_for(result, network["builder"], network["kwargs"], plan.run.preprocess), seed=0
        ).parameters())
        for network in (values["model"], values["distill"]["student"])
    ]  # fmt: skip
    assert counts[1] < counts[0] / 2


def test_what_was_detected_is_printed(tmp_path: Path) -> None:
    created = scenes(30)
    WRITERS["voc"](tmp_path / "data", created)
    done = edgekit("init", "mine", "--data", tmp_path / "data", "--out", tmp_path)
    boxes = sum(len(scene.things) for scene in created)
    output = f"a folder of 30 pictures with {boxes} boxes (Pascal VOC), 64×48, in colour, seen as 64×48"
    assert output in done.output and f"3 classes: {', '.join(CLASSES)}" in done.output, done.output
    assert "In a sample the median box is 12×" in (tmp_path / "mine.yaml").read_text()


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    WRITERS["yolo"](tmp_path / "data", scenes(30))
    for path in (tmp_path / "data").rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert write_config("--data", tmp_path / "data", out=tmp_path)["data"]["channels"] == 1


@pytest.fixture
def large_scenes(tmp_path: Path) -> Path:
    """Pictures of 400×300 with boxes, in colour."""
    WRITERS["yolo"](tmp_path / "data", scenes(30))
    for path in (tmp_path / "data").rglob("*.png"):
        Image.open(path).resize((400, 300)).save(path)
    return tmp_path / "data"


def test_other_tasks_see_fewer_pixels(large_scenes: Path) -> None:
    findings = detect_source(large_scenes, "keypoints")
    assert not findings.starts_pretrained
    assert (findings.section["height"], findings.section["width"]) == (144, 192)


def test_few_large_pictures_in_colour_start_from_a_trained_backbone(large_scenes: Path, tmp_path: Path) -> None:
    values = write_config("--data", large_scenes, out=tmp_path)
    assert (values["data"]["height"], values["data"]["width"]) == (224, 304)
    assert values["model"]["builder"] == "edgekit.models.detector:backbone_detector"
    assert values["profile"]["optimizer"] == "adamw" and values["profile"]["batch_size"] == 8
    plan = load_plan(tmp_path / "mine.yaml")
    assert plan.pipeline == ("profile", "convert", "benchmark", "bundle")
    assert plan.run.model.pretrained is not None and plan.run.model.pretrained.backbone_rate == 1.0


@pytest.mark.parametrize(
    ("size", "expected"),
    [((640, 480), (192, 144)), ((480, 640), (144, 192)), ((600, 400), (192, 128)), ((64, 48), (64, 48)),
     ((1000, 1000), (160, 160)), ((5, 5), (16, 16))],
)  # fmt: skip
def test_a_sample_has_the_pictures_proportions(size: tuple[int, int], expected: tuple[int, int]) -> None:
    assert sample_size(size) == expected


def test_a_sample_of_any_picture_is_a_multiple_of_sixteen_and_mostly_picture() -> None:
    random = np.random.default_rng(0)
    for width, height in random.integers(48, 4000, (40, 2)).tolist():
        wide, high = sample_size((width, height))
        assert wide % 16 == high % 16 == 0 and wide * high <= MAX_PIXELS
        if 1 / 3 < width / height < 3:
            scale = min(wide / width, high / height)
            assert scale**2 * width * height > 0.75 * wide * high, (width, height, wide, high)


def both_formats(home: Path) -> None:
    WRITERS["voc"](home, scenes(6))
    WRITERS["yolo"](home, scenes(6))


def no_label_files(home: Path) -> None:
    WRITERS["yolo"](home, scenes(6))
    for path in (home / "labels").rglob("*.txt"):
        path.rename(path.with_name(f"label_of_{path.name}"))


def polygons(home: Path) -> None:
    WRITERS["yolo"](home, scenes(6))
    for path in (home / "labels").rglob("*.txt"):
        path.write_text("0 0.1 0.1 0.5 0.1 0.5 0.5 0.1\n")


def no_names(home: Path) -> None:
    WRITERS["yolo"](home, scenes(6))
    (home / "data.yaml").unlink()


def half_a_json(home: Path) -> None:
    WRITERS["coco"](home, scenes(6))
    path = home / "annotations/instances_train2017.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({key: values[key] for key in ("images", "annotations")}))


def cut_json(home: Path) -> None:
    WRITERS["coco"](home, scenes(6))
    path = home / "annotations/instances_train2017.json"
    path.write_text(path.read_text()[:-20])


def no_pictures(home: Path) -> None:
    WRITERS["voc"](home, scenes(6))
    (home / "JPEGImages/scene001.png").unlink()


def no_boxes(home: Path) -> None:
    WRITERS["voc"](home, scenes(6))
    for path in (home / "Annotations").iterdir():
        path.write_text("<annotation></annotation>")


def broken_pictures(home: Path) -> None:
    WRITERS["coco"](home, scenes(6))
    for path in home.rglob("*.png"):
        path.write_bytes(b"\x89PNG\r\n\x1a\nbut no picture")


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (both_formats, "contains annotations of Pascal VOC and YOLO; keep one kind, or write the config by hand"),
        (
            no_label_files,
            "none of them describes boxes, for example labels/test/scene000.txt for images/test/scene000.png",
        ),
        (polygons, "line 1: got 8 numbers; a polygon is the class, and x and y of its points"),
        (no_names, "the classes have no names: add data.yaml or classes.txt"),
        (half_a_json, "not COCO annotations; expected lists under images, annotations, categories"),
        (cut_json, "not JSON ("),
        (no_pictures, "scene001.xml: there is no picture with this name"),
        (no_boxes, "Pascal VOC annotations without a single box; export them again"),
        (broken_pictures, "none of its pictures can be opened; check that they are not damaged"),
    ],
)
def test_what_cannot_be_used_is_one_line(spoilt: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    spoilt(tmp_path / "data")
    done = edgekit("init", "mine", "--data", tmp_path / "data", "--out", tmp_path / "out")
    assert done.exit_code == 4 and message in done.output, done.output
    assert len(done.output.strip().splitlines()) == 1, done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("task", ["classification", "regression", "anomaly"])
def test_boxes_serve_no_other_task(task: str, tmp_path: Path) -> None:
    WRITERS["voc"](tmp_path / "data", scenes(12))
    done = edgekit("init", "mine", "--task", task, "--data", tmp_path / "data", "--out", tmp_path / "out")
    assert done.exit_code == 2 and "use --task detection, or leave --task out" in done.output, done.output


def test_pictures_in_folders_of_classes_have_no_boxes(tmp_path: Path) -> None:
    home = unpacked(tmp_path, samples())
    done = edgekit("init", "mine", "--task", "detection", "--data", home, "--out", tmp_path / "out")
    assert done.exit_code == 2 and "put annotations beside the pictures" in done.output, done.output


@pytest.mark.parametrize("labels", ["boxes", "classes"])
def test_the_error_for_arrays_lists_the_layouts_of_boxes(labels: str, tmp_path: Path) -> None:
    """Labels of the very shape that the task has are refused too, so their shape is not what is said to be wrong."""
    data, y = tmp_path / "data.npz", np.full((40, 3, 5), -1, np.float32)
    y[:, 0, 3:] = 32
    x = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3)).astype(np.uint8)
    np.savez(data, x_train=x, y_train=y if labels == "boxes" else np.arange(40) % 3)
    done = edgekit("init", "mine", "--task", "detection", "--data", data, "--out", tmp_path / "out")
    output = " ".join(done.output.split())
    assert done.exit_code == 2 and output.startswith(
        "edgekit: --task detection: an .npz file, and edgekit init reads"
    ), output
    assert all(word in output for word in ("Annotations/*.xml", "a .json for each split", "labels/split/*.txt"))
    assert output.endswith("for boxes in arrays, write the config by hand") and "y_train is" not in output


def test_sounds_are_not_sent_to_an_npz_for_boxes(tmp_path: Path) -> None:
    data = sounds(tmp_path / "sounds", 8)
    done = edgekit("init", "mine", "--task", "detection", "--data", data, "--out", tmp_path / "out")
    output = " ".join(done.output.split())
    assert done.exit_code == 2 and "reads boxes only beside pictures" in output and ".npz" not in output, output


def test_files_of_other_tools_beside_the_pictures_of_classes_change_nothing(tmp_path: Path) -> None:
    home = unpacked(tmp_path, samples())
    (home / "export.json").write_text('{"images": 3}')
    (home / "readme.xml").write_text("<project></project>")
    first = next(home.rglob("*.png"))
    first.with_suffix(".txt").write_text("a bee, seen from above\n")
    values = write_config("--data", home, out=tmp_path)
    assert (values["data"]["source"], values["task"]) == ("image_folder", "classification")


@pytest.mark.needs(data="data/bccd.zip")
def test_blood_cells_have_a_config(tmp_path: Path) -> None:
    values = write_config("--data", "${EDGEKIT_SHARED}/data/bccd.zip", out=tmp_path)
    section = values["data"]
    assert (section["source"], section["annotations"]) == ("boxes", "voc")
    assert section["path"] == "${EDGEKIT_SHARED}/data/bccd.zip"
    assert (section["width"], section["height"]) == (304, 224)
    assert not {"validation_fraction", "test_fraction"} & set(section)
    data = load(load_plan(tmp_path / "mine.yaml").data)
    assert data.classes == ("Platelets", "RBC", "WBC")
    assert (len(data.train) + len(data.calibration), len(data.validation), len(data.test)) == (205, 87, 72)
    detection.check_split("validation", data.validation.y, data.classes)
