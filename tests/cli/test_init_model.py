"""`edgekit init --model`: size and classes come from the file, and the preprocessing from evidence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from edgekit.data import load
from edgekit.models.files.preprocess_search import Chain
from edgekit.report.sections import preprocessing
from edgekit.workbook.plan import load_plan
from tests.cli import painted
from tests.cli.test_init import edgekit, write_config
from tests.data import diamonds, posed
from tests.models.files import keypoint_heads, mask_heads
from tests.models.files.detector_heads import exported

CHAINS = [
    Chain("-1 to 1"),
    Chain("ImageNet's mean", is_bgr=True),
    pytest.param(Chain("0 to 1"), marks=pytest.mark.long),
    pytest.param(Chain("0 to 255", is_bgr=True), marks=pytest.mark.long),
]
YOLO_FACTS: dict[str, Any] = {"stride": 32, "imgsz": [64, 64], "task": "detect", "names": list(painted.COLOURS)}


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_the_scale_and_the_order_of_colours_are_chosen_by_accuracy(chain: Chain, tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data", colours=painted.SHADES)
    painted.classifier(tmp_path / "net.onnx", chain.steps, painted.SHADES)
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    assert values["preprocess"] == chain.steps
    assert values["data"]["size"] == 64 and values["model"] == {"source": "net.onnx"}
    assert not {"distill", "prune", "quantize"} & set(values)


def test_the_config_lists_what_was_tried(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    painted.classifier(tmp_path / "net.onnx")
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert "input  0 to 1, RGB, stretch: top-1 accuracy 100.0%" in done.output, done.output
    record = load_plan(tmp_path / "mine.yaml").run.preprocess_tried
    assert record is not None and record.metric == "top-1 accuracy" and record.samples <= 48
    chosen, *others = record.tried
    assert (chosen.input, chosen.accuracy, chosen.behind_pp) == ("0 to 1, RGB, stretch", 1.0, [0.0, 0.0])
    [bytes_too] = [each for each in others if each.input.startswith("0 to 255, RGB")]
    least, most = bytes_too.behind_pp
    assert 0 < least < 100 * (1 - bytes_too.accuracy) < most
    shown = str(preprocessing.table(record))
    assert "0 to 1, RGB, stretch" in shown and f"{least:.1f} to {most:.1f}" in shown


def test_ways_to_size_that_are_as_good_are_named_and_the_usual_one_is_kept(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    for path in (tmp_path / "data").rglob("*.png"):
        Image.open(path).resize((100, 80)).save(path)
    painted.classifier(tmp_path / "net.onnx")
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    [line] = [line for line in done.output.splitlines() if "is not significantly better than" in line]
    assert line.strip().startswith("stretch is not") and "crop 100.0%" in line, done.output
    assert line.endswith("the usual way is kept")


def test_only_samples_of_train_are_tried(tmp_path: Path) -> None:
    """The pictures of the test split have the colours of other classes, which would lower the accuracy."""
    names = list(painted.COLOURS)
    painted.classes_folder(tmp_path / "data")
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        (tmp_path / "data/test" / name).rename(tmp_path / "data/test" / f"{other}-new")
    for name in names:
        (tmp_path / "data/test" / f"{name}-new").rename(tmp_path / "data/test" / name)
    painted.classifier(tmp_path / "net.onnx")
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    assert values["preprocess"] == painted.ZERO_TO_ONE
    record = load_plan(tmp_path / "mine.yaml").run.preprocess_tried
    assert record is not None and record.tried[0].accuracy == 1


def test_preprocessing_that_the_data_do_not_decide_must_be_named(tmp_path: Path) -> None:
    greys = {"dark": (60, 60, 60), "light": (180, 180, 180)}
    painted.classes_folder(tmp_path / "data", colours=greys)
    painted.classifier(tmp_path / "net.onnx", colours=greys)
    result = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert result.exit_code == 2 and "--preprocess '0 to 1, BGR'" in result.output, result.output
    assert not (tmp_path / "mine.yaml").exists()
    values = write_config(
        "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--preprocess", "0 to 1, bgr", out=tmp_path
    )
    assert values["preprocess"] == [*painted.ZERO_TO_ONE, {"step": "bgr"}]


def test_a_chain_that_is_named_is_kept(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    painted.classifier(tmp_path / "net.onnx")
    values = write_config(
        "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--preprocess", "0 to 1, BGR", out=tmp_path
    )
    assert values["preprocess"] == [*painted.ZERO_TO_ONE, {"step": "bgr"}]


def test_a_file_for_several_pictures_at_a_time_is_refused(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    model = onnx.load(painted.classifier(tmp_path / "net.onnx"))
    for each in (*model.graph.input, *model.graph.output):
        each.type.tensor_type.shape.dim[0].dim_value = 4
    onnx.save(model, tmp_path / "net.onnx")
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code == 2 and "takes 4 pictures at a time" in done.output, done.output


def test_a_model_that_fits_no_chain_is_refused(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    painted.classifier(tmp_path / "net.onnx", colours=dict.fromkeys(painted.COLOURS, (90, 90, 90)))
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code == 4 and "no usual preprocessing fits" in done.output, done.output
    assert not (tmp_path / "mine.yaml").exists()


def test_a_detector_gets_the_geometry_of_its_exporter(tmp_path: Path) -> None:
    painted.boxes_folder(tmp_path / "data")
    painted.detector(tmp_path / "net.onnx", **YOLO_FACTS)
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    section = values["data"]
    assert values["task"] == "detection" and values["preprocess"] == painted.ZERO_TO_ONE
    assert (section["height"], section["width"], section["fill"], section["filter"]) == (64, 64, 114, "sampled")
    assert "classes" not in section


@pytest.mark.parametrize("form", ["yolo", pytest.param("coco", marks=pytest.mark.long)])
def test_a_file_for_keypoints_gets_the_source_that_reads_them(form: str, tmp_path: Path) -> None:
    posed.WRITERS[form](tmp_path / "data", posed.pictures(24, fixed=True))
    keypoint_heads.save_known(tmp_path / "net.onnx")
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    section = values["data"]
    assert (values["task"], section["source"], section["annotations"]) == ("keypoints", "keypoints", form)
    assert (section["height"], section["width"], section["fill"]) == (64, 96, 114)
    assert values["preprocess"] == painted.ZERO_TO_ONE and "distill" not in values


@pytest.mark.parametrize("form", [pytest.param("yolo", marks=pytest.mark.long), "coco"])
def test_a_file_for_instance_masks_gets_the_source_that_reads_them(form: str, tmp_path: Path) -> None:
    diamonds.WRITERS[form](tmp_path / "data", diamonds.pictures(24, fixed=True))
    mask_heads.save_known(tmp_path / "net.onnx")
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    section = values["data"]
    assert (values["task"], section["source"], section["annotations"]) == ("instance_masks", "instance_masks", form)
    assert (section["height"], section["width"], section["fill"]) == (64, 96, 114)
    assert values["preprocess"] == painted.ZERO_TO_ONE and "distill" not in values


def test_prototypes_identify_a_file_for_instance_masks_without_metadata(tmp_path: Path) -> None:
    diamonds.yolo(tmp_path / "data", diamonds.pictures(24, fixed=True))
    (tmp_path / "net.onnx").write_bytes(exported(mask_heads.Known))
    arguments = ("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--preprocess", "0 to 1, RGB")
    assert write_config(*arguments, out=tmp_path)["task"] == "instance_masks"


def test_keypoints_are_not_trained(tmp_path: Path) -> None:
    posed.yolo(tmp_path / "data", posed.pictures(12))
    done = edgekit("init", "mine", "--task", "keypoints", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code == 2 and "edgekit trains no network for it; name a model file, --model FILE" in done.output
    config = tmp_path / "own.yaml"
    config.write_text(
        "name: own\ntask: keypoints\n"
        "data: {source: keypoints, path: data, annotations: yolo}\n"
        "model: {builder: edgekit.models.detector:detector}\n"
    )
    done = edgekit("run", config, "--dry-run")
    assert done.exit_code == 2 and "task: keypoints supports only a model file" in done.output, done.output


def test_classes_that_no_picture_has_keep_their_place(tmp_path: Path) -> None:
    painted.boxes_folder(tmp_path / "data")
    names = [*painted.COLOURS]
    for path in (tmp_path / "data/labels").glob("*.txt"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("0 ")]
        path.write_text("\n".join(lines))
    painted.detector(tmp_path / "net.onnx", **YOLO_FACTS)
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    assert values["data"]["classes"] == names
    data = load(load_plan(tmp_path / "mine.yaml").data)
    assert data.classes == tuple(names)
    assert set(np.unique(data.validation.y[:, 1:, 0]).tolist()) == {-1, 1, 2, 3}


@pytest.mark.parametrize(
    ("numbers", "head"), [((24, 24, 48, 48), "yolov8"), ((0, 0, 48, 48), "picodet")], ids=["centres", "corners"]
)
def test_labels_decide_between_centres_and_corners(numbers: tuple[int, ...], head: str, tmp_path: Path) -> None:
    """Both ways give boxes in the picture, so the numbers alone do not decide."""
    box = (0, 0, 48, 48)
    painted.one_object_folder(tmp_path / "data", box)
    painted.one_object_detector(tmp_path / "net.onnx", box, numbers)
    values = write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    assert values["model"] == {"source": "net.onnx", "head": head}


def test_two_ways_to_read_boxes_that_the_labels_do_not_decide_are_asked_for(tmp_path: Path) -> None:
    box, numbers = (5, 5, 50, 50), (10, 10, 60, 60)
    painted.one_object_folder(tmp_path / "data", box)
    painted.one_object_detector(tmp_path / "net.onnx", box, numbers)
    arguments = ("--model", tmp_path / "net.onnx", "--data", tmp_path / "data")
    result = edgekit("init", "mine", *arguments, "--out", tmp_path)
    assert result.exit_code == 2 and "do not decide how its outputs are read" in result.output, result.output
    assert "--head 'picodet'" in result.output and "--head 'yolov8'" in result.output
    assert not (tmp_path / "mine.yaml").exists()
    values = write_config(*arguments, "--head", "YOLOv8, corners in pixels", out=tmp_path)
    assert values["model"]["head"] == "YOLOv8, corners in pixels"


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("yolov99", "the known names are yolov8, "),
        ("yolov8, somewhere", "after yolov8 may follow centres in pixels"),
        ("yolov5", "These cannot be read as 'yolov5', but as "),
        ("picodet", "--head names another detector"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(head: str, message: str, tmp_path: Path) -> None:
    box = (0, 0, 48, 48)
    painted.one_object_folder(tmp_path / "data", box)
    painted.one_object_detector(tmp_path / "net.onnx", box, (24, 24, 48, 48))
    done = edgekit(
        "init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--head", head, "--out", tmp_path
    )
    assert done.exit_code in (2, 4) and message in done.output, done.output
    assert not (tmp_path / "mine.yaml").exists()


def test_a_head_belongs_to_a_detector(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    painted.classifier(tmp_path / "net.onnx")
    arguments = ("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--head", "yolov8")
    done = edgekit("init", "mine", *arguments, "--out", tmp_path)
    assert done.exit_code == 2 and "--head yolov8: belongs to a detector" in done.output, done.output


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a", "b", "c", "d"]}, "its classes are a, b, c, d, but the data also have brown"),
        ({"task": "obb"}, "predicts rotated boxes"),
        ({"task": "pose"}, "predicts keypoints; use data that have them"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    painted.boxes_folder(tmp_path / "data")
    painted.detector(tmp_path / "net.onnx", **{**YOLO_FACTS, **change})
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code in (2, 4) and message in done.output, done.output
    assert "Traceback" not in done.output and not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no such file"), (b"text", "looks like"), (b"", "a model file is")]
)
def test_a_file_that_is_no_model_is_refused(content: bytes | None, message: str, tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    if content is not None:
        (tmp_path / "net.onnx").write_bytes(content)
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code == 4 and message in done.output, done.output


def test_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    painted.classifier(tmp_path / "net.onnx", colours={**painted.COLOURS, "white": (250, 250, 250)})
    done = edgekit("init", "mine", "--model", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    assert done.exit_code == 2 and "scores for 5 classes, but the data have 4" in done.output, done.output


def test_a_preprocess_without_a_model_is_refused(tmp_path: Path) -> None:
    done = edgekit("init", "mine", "--preprocess", "0 to 1, RGB", "--out", tmp_path)
    assert done.exit_code == 2 and "--preprocess" in done.output


def test_optimize_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    painted.classes_folder(tmp_path / "data")
    painted.classifier(tmp_path / "net.onnx")
    common = ("optimize", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path)
    for options, message in ((("--drop", "much"), "--drop much"), (("--targets", "coreml"), "coreml")):
        done = edgekit(*common, *options)
        assert done.exit_code == 2 and message in done.output, done.output
    assert not list(tmp_path.glob("*.yaml"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("other.onnx", "--data", "data"), "FILE: "),
        (("net.onnx", "--data", "others"), "--data: "),
        (("net.onnx", "--data", "data", "--drop", "7pp"), "--drop: "),
        (("net.onnx", "--data", "data", "--targets", "onnx"), "--targets: "),
    ],
)
def test_optimize_does_not_take_the_config_of_another_call(
    arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.yaml").write_text("model: {source: net.onnx}\ndata: {path: data}\nbudget: {accuracy_drop_pp: 5}\n")
    done = edgekit("optimize", *arguments, "--name", "net")
    assert done.exit_code == 2 and message in done.output and "already there" in done.output, done.output


@pytest.mark.long
@pytest.mark.parametrize("kind", ["classifier", "detector", "keypoints", "instance_masks"])
def test_optimize_gives_a_bundle_for_each_target(kind: str, tmp_path: Path) -> None:
    if kind == "classifier":
        painted.classes_folder(tmp_path / "data", each=60)
        painted.classifier(tmp_path / "net.onnx")
    elif kind == "keypoints":
        posed.yolo(tmp_path / "data", posed.pictures(40, fixed=True))
        keypoint_heads.save_known(tmp_path / "net.onnx")
    elif kind == "instance_masks":
        diamonds.yolo(tmp_path / "data", diamonds.pictures(40, fixed=True))
        mask_heads.save_known(tmp_path / "net.onnx")
    else:
        painted.boxes_folder(tmp_path / "data", count=40)
        painted.detector(tmp_path / "net.onnx", **YOLO_FACTS)
    arguments = ("optimize", tmp_path / "net.onnx", "--data", tmp_path / "data", "--out", tmp_path, "--drop", "60pp")
    done = edgekit(*arguments)
    assert done.exit_code == 0, done.output
    decision = json.loads((tmp_path / "artifacts/net/bundles/decision.json").read_text())
    assert sorted(decision["bundles"]) == ["onnx", "openvino", "tflite"]
    again = edgekit(*arguments)
    assert again.exit_code == 0 and "already there" in again.output


@pytest.mark.long
def test_a_detector_whose_int8_is_too_coarse_for_its_boxes_says_so(tmp_path: Path) -> None:
    painted.boxes_folder(tmp_path / "data", count=40, white=True)
    painted.with_outliers(painted.detector(tmp_path / "net.onnx", **YOLO_FACTS))
    write_config("--model", tmp_path / "net.onnx", "--data", tmp_path / "data", out=tmp_path)
    out = ("--out", tmp_path / "artifacts", "--set", "targets=[onnx]")
    done = edgekit("run", tmp_path / "mine.yaml", *out)
    assert done.exit_code == 0, done.output
    [left_out] = json.loads((tmp_path / "artifacts/mine/result.json").read_text())["left_out"]
    assert "with the boxes of the float file, the fraction is 1.0000, with its scores 0.0000" in left_out["cause"]
    done = edgekit("run", tmp_path / "mine.yaml", *out, "--set", "convert.int8_min_top1_agreement=0")
    assert done.exit_code == 0, done.output
    [lost] = json.loads((tmp_path / "artifacts/mine/result.json").read_text())["branches"]
    assert (lost["name"], lost["lost_by"]) == ("baseline-int8-onnx", "boxes")
    reached = {row["branch"]: row["accuracy"] for row in lost["replaced"]}
    assert reached["boxes"] == pytest.approx(lost["reference_accuracy"], abs=0.1)
    assert reached["scores"] < lost["accuracy"] + 0.1
    assert "by its boxes" in done.output.replace("\n", " ")
