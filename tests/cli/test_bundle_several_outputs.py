"""`edgekit bundle` of detectors, segmenters and models of any outputs: from their files to answers; what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import load
from edgekit.runner.bundle.manifest import TensorSpec
from tests.cli import several_outputs as models
from tests.cli.several_outputs import GRID, LABELS, POINTS, SHAPE
from tests.cli.test_bundle import SCALE, bundle_in, edgekit, last_output

pytestmark = pytest.mark.zoo

SWAPPED = ("scores", "boxes")
MAKERS: dict[str, Callable[..., Path]] = {"onnx": models.onnx, "xml": models.openvino, "tflite": models.tflite}
ON = {"onnx": "onnxruntime", "xml": "openvino", "tflite": "litert"}


def bundle(path: Path, task: str, *words: object, out: Path | None = None) -> int:
    """The command with pictures, labels of a picture's task, and bytes scaled to 0 to 1."""
    golden = models.pictures(path.parent / "golden")
    names = () if task in ("raw", "embedding") else ("--labels", ",".join(LABELS))
    common = ("--golden", golden, "--preprocess", SCALE, *names, "--out", out or path.parent / "out")
    return edgekit("bundle", path, "--task", task, *common, *words)


def agree(packed: Path, interpreter: str, threshold: float = 0.5, classes: int = 3) -> None:
    """The bundle's boxes are those of the network's own arithmetic."""
    model = load(packed, trial=False, interpreter=interpreter)
    assert model.selftest().ok
    expected = models.expected_boxes(models.images(), threshold, classes)
    assert any(expected)
    for image, boxes in zip(models.images(), expected, strict=True):
        answer = model.predict(image).boxes  # type: ignore[union-attr]
        assert [each.label for each in answer] == [model.manifest.labels[kind] for kind, _ in boxes]
        np.testing.assert_allclose([each.box for each in answer], [sides for _, sides in boxes], atol=0.01)


@pytest.mark.parametrize("order", [("boxes", "scores"), SWAPPED], ids=["boxes_first", "scores_first"])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_detector_of_two_outputs_answers_with_boxes(kind: str, order: tuple[str, ...], tmp_path: Path) -> None:
    path = MAKERS[kind](tmp_path / f"two.{kind}", order)
    assert bundle(path, "detection") == 0, last_output()
    packed = bundle_in(tmp_path / "out")
    agree(packed, ON[kind])
    manifest = load(packed, trial=False).manifest
    assert [each.shape for each in manifest.outputs] == [(1, POINTS, 4), (1, POINTS, 3)]
    assert manifest.boxes == {"least_probability": 0.5, "overlap": 0.5, "most": 100}
    assert "boxes       " in last_output() and "half of them larger than" in last_output()


def test_onnx_files_answer_alike_on_openvino(tmp_path: Path) -> None:
    assert bundle(models.onnx(tmp_path / "two.onnx", SWAPPED), "detection") == 0, last_output()
    agree(bundle_in(tmp_path / "out"), "openvino")


def test_one_joined_output_and_an_open_batch_are_taken(tmp_path: Path) -> None:
    path = models.onnx(tmp_path / "joined.onnx", ("joined",), batch="n")
    assert bundle(path, "detection", "--threshold", 0.3) == 0, last_output()
    assert "changed     its open batch was set to 1" in last_output()
    agree(bundle_in(tmp_path / "out"), "onnxruntime", 0.3)


def test_an_open_batch_of_two_outputs_is_closed(tmp_path: Path) -> None:
    assert bundle(models.onnx(tmp_path / "open.onnx", SWAPPED, batch="n"), "detection") == 0, last_output()
    agree(bundle_in(tmp_path / "out"), "onnxruntime")


def test_a_quantized_detector_keeps_a_scale_for_each_output(tmp_path: Path) -> None:
    path = models.tflite(tmp_path / "small.tflite", SWAPPED, integers=True)
    assert bundle(path, "detection") == 0, last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False, interpreter="litert")
    assert [each.dtype for each in model.manifest.outputs] == ["int8", "int8"]
    outputs = np.stack([model.execute(model.prepare(image)) for image in models.images()])
    exact = models.expected_outputs(models.images())
    for part in (np.s_[..., :4], np.s_[..., 4:]):
        assert np.abs(outputs[part] - exact[part]).max() < 0.03 * np.ptp(exact[part])


def test_with_four_classes_the_boxes_are_named(tmp_path: Path) -> None:
    path = models.onnx(tmp_path / "four.onnx", SWAPPED, classes=4)
    words = ("--labels", "a,b,c,d")
    assert bundle(path, "detection", *words) == 2
    assert last_output() == (
        "edgekit: --boxes: scores and boxes both give 4 numbers for each point; name the output with the boxes\n"
    )
    assert bundle(path, "detection", *words, "--boxes", "heads") == 2
    assert "--boxes heads: the model has no such output; it has scores, boxes" in last_output()
    assert bundle(path, "detection", *words, "--boxes", "boxes") == 0, last_output()
    agree(bundle_in(tmp_path / "out"), "onnxruntime", classes=4)


def test_the_device_draws_boxes_into_pictures_of_any_size(tmp_path: Path) -> None:
    assert bundle(models.onnx(tmp_path / "two.onnx"), "detection", "--fit", "letterbox") == 0, last_output()
    packed, large = bundle_in(tmp_path / "out"), tmp_path / "large.png"
    Image.fromarray(models.images(1)[0]).resize((96, 64), Image.Resampling.NEAREST).save(large)

    def edgerun(*words: object) -> str:
        command = [sys.executable, "-I", packed.parent / "edgerun.pyz", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    small = json.loads(edgerun("predict", packed, tmp_path / "golden" / "0.png", "--json"))["boxes"]
    twice = json.loads(edgerun("predict", packed, large, "--json", "--draw", tmp_path / "drawn.png"))["boxes"]
    assert small and len(small) == len(twice)
    first, other = (np.array(sorted(each["box"] for each in result)) for result in (small, twice))
    np.testing.assert_allclose(other, 2 * first, atol=0.1)
    assert (np.asarray(Image.open(tmp_path / "drawn.png")) != np.asarray(Image.open(large))).any()
    assert "of 6 golden samples" in edgerun("selftest", packed)
    assert "boxes of red, white, platelet" in load(packed, trial=False).bundle.members["README.md"].decode()


@pytest.mark.parametrize("interpreter", ["onnxruntime", "openvino"])
def test_raw_outputs_come_by_their_names(interpreter: str, tmp_path: Path) -> None:
    assert bundle(models.onnx(tmp_path / "two.onnx", SWAPPED), "raw") == 0, last_output()
    assert f"gives scores float32[1, {POINTS}, 3] and boxes float32[1, {POINTS}, 4]" in last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False, interpreter=interpreter)
    image = models.images(1)[0]
    answer, exact = model.predict(image), models.expected_outputs(image[None])[0]
    assert [*answer.outputs] == ["scores", "boxes"]  # type: ignore[union-attr]
    np.testing.assert_allclose(answer.outputs["boxes"], exact[:, :4], atol=1e-4)  # type: ignore[union-attr]
    np.testing.assert_allclose(answer.outputs["scores"], exact[:, 4:], atol=1e-4)  # type: ignore[union-attr]
    message = answer.to_dict()
    assert message["shapes"] == {"scores": [POINTS, 3], "boxes": [POINTS, 4]}
    scores = np.asarray(message["outputs"]["scores"], np.float32)
    assert np.array_equal(scores, answer.outputs["scores"])  # type: ignore[union-attr]
    assert answer.lines()[0] == "2 outputs" and answer.lines()[1].startswith(f"  scores float32[{POINTS}, 3], from ")


def test_raw_outputs_of_tflite_are_called_as_its_signature_calls_them(tmp_path: Path) -> None:
    assert bundle(models.tflite(tmp_path / "two.tflite"), "raw") == 0, last_output()
    model, image = load(bundle_in(tmp_path / "out"), trial=False), models.images(1)[0]
    answer, exact = model.predict(image), models.expected_outputs(image[None])[0]
    by_width = {y.shape[1]: (name, y) for name, y in answer.outputs.items()}  # type: ignore[union-attr]
    assert {name for name, _ in by_width.values()} == {"output_0", "output_1"}
    np.testing.assert_allclose(by_width[4][1], exact[:, :4], atol=1e-4)
    np.testing.assert_allclose(by_width[3][1], exact[:, 4:], atol=1e-4)


@pytest.mark.parametrize("kind", ["onnx", "tflite"])
def test_a_segmenter_names_the_class_of_each_pixel(kind: str, tmp_path: Path) -> None:
    """Its classes before rows and columns in ONNX, behind them in TFLite."""
    make = {"onnx": models.mask_onnx, "tflite": models.mask_tflite}[kind]
    assert bundle(make(tmp_path / f"masks.{kind}"), "segmentation") == 0, last_output()
    assert "masks       of 4×4 pixels a cell; the 6 recorded ones: " in last_output()
    model = load(bundle_in(tmp_path / "out"), trial=False)
    assert model.selftest().ok
    assert [each.layout for each in model.manifest.outputs] == [{"onnx": "NCHW", "tflite": "NHWC"}[kind]]
    for image in models.images():
        assert np.array_equal(model.predict(image).mask, models.mask(image))  # type: ignore[union-attr]
    assert set(model.predict(models.images(1)[0]).to_dict()["shares"]) == set(LABELS)


def test_channels_behind_are_taken_from_onnx_and_openvino_too(tmp_path: Path) -> None:
    assert bundle(models.mask_onnx(tmp_path / "last.onnx", axes=(0, 2, 3, 1)), "segmentation") == 0, last_output()
    for interpreter in ("onnxruntime", "openvino"):
        model = load(bundle_in(tmp_path / "out"), trial=False, interpreter=interpreter)
        assert model.manifest.output_shape == (3, *GRID)
        for image in models.images(3):
            assert np.array_equal(model.predict(image).mask, models.mask(image))  # type: ignore[union-attr]


def test_an_embedding_is_of_length_one(tmp_path: Path) -> None:
    from tests.runner import conftest as tiny

    path = tmp_path / "vectors.onnx"
    path.write_bytes(tiny.onnx_model())
    np.save(tmp_path / "sample.npy", tiny.samples(1)[0])
    words = ("--task", "embedding", "--preprocess", SCALE, "--out", tmp_path / "out")
    assert edgekit("bundle", path, "--golden", tmp_path / "sample.npy", *words) == 0, last_output()
    answer = load(bundle_in(tmp_path / "out"), trial=False).predict(tiny.samples(1)[0])
    assert np.linalg.norm(answer.embedding) == pytest.approx(1)  # type: ignore[union-attr]


REFUSED = [
    ("classification", {}, (), 4, "has 2 outputs (boxes, scores); a bundle's model has one output, besides states"),
    ("segmentation", {}, (), 4, "use --task detection for boxes with their logits, and --task raw for any others"),
    ("detection", {}, ("--labels", "a,b"), 4, "a detection of 2 classes gives boxes [points, 4] and logits"),
    ("detection", {"end": "Sigmoid"}, (), 4, "lie from 0 to 1, as after a sigmoid; a bundle takes the sigmoid itself"),
    ("detection", {"order": ("boxes", "scores", "joined")}, (), 4, "a detection of 3 classes gives boxes"),
    ("detection", {}, ("--activation", "none"), 2, "--activation none: a detection gives logits; leave it out"),
    ("detection", {}, ("--threshold", "1.5"), 2, "--threshold: got 1.5; use a probability between 0 and 1"),
    ("raw", {}, ("--threshold", "0.5"), 2, "--threshold: applies only to detection, and the task is raw"),
    ("raw", {}, ("--boxes", "boxes"), 2, "--boxes: applies only to detection, and the task is raw"),
    ("raw", {}, ("--labels", "a,b"), 2, "--labels: a raw output has no labels"),
    ("detection", {}, ("--range", "0,1", "--fit", "crop"), 2, "--fit crop: pictures in files are uint8"),
]


@pytest.mark.parametrize(("task", "of_it", "words", "code", "message"), REFUSED)
def test_what_does_not_fit_is_one_line_and_no_bundle(
    task: str, of_it: dict[str, object], words: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    path = models.onnx(tmp_path / "two.onnx", **of_it)  # type: ignore[arg-type]
    assert bundle(path, task, *words) == code, last_output()
    assert (
        message in last_output()
        and last_output().count("\n") <= 4
        and last_output().splitlines()[-1].startswith("edgekit: ")
    )
    assert not (tmp_path / "out").exists()


def test_a_detection_without_labels_and_with_a_resize_is_reported(tmp_path: Path) -> None:
    path, golden = models.onnx(tmp_path / "two.onnx"), models.pictures(tmp_path / "golden")
    common = ("bundle", path, "--golden", golden, "--task", "detection", "--out", tmp_path / "out")
    assert edgekit(*common) == 2 and "--labels: name the classes of --task detection" in last_output()
    steps = "[{step: resize, height: 32, width: 48}]"
    assert edgekit(*common, "--labels", "a,b,c", "--preprocess", steps, "--size", "64x96") == 2
    assert "boxes are measured in the pixels that the model sees; leave out resize and --size" in last_output()


def test_boxes_in_pixels_are_no_distances(tmp_path: Path) -> None:
    """Given bytes unscaled, the head's numbers are those of corners in pixels: most boxes leave the picture."""
    path, golden = models.onnx(tmp_path / "two.onnx"), models.pictures(tmp_path / "golden")
    words = ("--task", "detection", "--labels", ",".join(LABELS), "--out", tmp_path / "out")
    assert edgekit("bundle", path, "--golden", golden, *words) == 4, last_output()
    assert "reach far beyond the picture; a bundle's boxes are distances" in last_output()


def test_points_of_no_grids_are_reported(tmp_path: Path) -> None:
    import onnx

    model = onnx.load(models.onnx(tmp_path / "two.onnx"))
    del model.graph.output[:]
    for name, width in (("boxes", 4), ("scores", 3)):
        cut = onnx.helper.make_node("Slice", [name, "from", "to", "axis"], [f"{name}_cut"])
        model.graph.node.append(cut)
        shape = [1, POINTS - 1, width]
        model.graph.output.append(onnx.helper.make_tensor_value_info(f"{name}_cut", onnx.TensorProto.FLOAT, shape))
    for name, number in (("from", 1), ("to", POINTS), ("axis", 1)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([number]), name))
    onnx.save(model, tmp_path / "cut.onnx")
    assert bundle(tmp_path / "cut.onnx", "detection") == 4
    assert f"{POINTS - 1} points for a picture of {SHAPE[1]}×{SHAPE[0]}: no grids with strides" in last_output()


@pytest.mark.parametrize(
    ("classes", "axes", "message"),
    [
        (2, None, "gives [2, 8, 12] for each sample; a segmentation of 3 classes gives logits [3, rows, columns] or"),
        (1, None, "make two channels of the one, by concatenating -x and x"),
        (3, (0, 1, 3, 2), "a grid of 12×8 cells over 32×48 pixels: height and width must be the same whole"),
    ],
)
def test_grids_of_another_kind_are_reported(
    classes: int, axes: tuple[int, ...] | None, message: str, tmp_path: Path
) -> None:
    assert bundle(models.mask_onnx(tmp_path / "masks.onnx", classes, axes), "segmentation") == 4
    assert message in last_output() and last_output().count("\n") == 1


def test_the_house_detector_goes_from_its_target_to_a_bundle(tmp_path: Path) -> None:
    """As `edgekit.targets` exports it: the bundle's outputs are those of PyTorch."""
    import torch

    from edgekit.models import store
    from edgekit.targets.onnx.convert import convert

    spec = store.ModelSpec(
        builder="edgekit.models.detector:detector", kwargs={"width": 4, "depth": 1}, input_shape=(3, 32, 48),
        num_classes=3, classes=LABELS, task="detection", raw={"kind": "image", "shape": [32, 48, 3], "dtype": "uint8"},
    )  # fmt: skip
    network = store.build(spec)
    store.save(tmp_path / "saved", network, spec)
    files = convert(tmp_path / "saved", "fp32", None, tmp_path)
    assert bundle(tmp_path / files.names[0], "detection", "--threshold", 0.005) == 0, last_output()
    model, image = load(bundle_in(tmp_path / "out"), trial=False), models.images(1)[0]
    x = torch.from_numpy(image.transpose(2, 0, 1)[None].astype(np.float32) / 255)
    with torch.inference_mode():
        exact = np.concatenate([each.numpy() for each in network(x)], axis=2)[0]
    np.testing.assert_allclose(model.execute(model.prepare(image)), exact, atol=1e-5)
    assert isinstance(model.manifest.outputs[0], TensorSpec) and model.predict(image).boxes  # type: ignore[union-attr]
