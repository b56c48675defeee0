"""Pictures with masks: both layouts give the same samples and labels, and errors are reported."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.core.errors import DataError
from edgekit.data import Data, load, mask_layouts, parse
from edgekit.runner import bundle, input_path, inputs
from edgekit.runner import masks as device
from edgekit.runner.backends import open_backend
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.preprocess import transform
from tests.data import odd_files
from tests.data.masked import CLASSES, UNKNOWN, WRITERS, indexed, scenes
from tests.runner.conftest import npy

TASK = "segmentation"
SIDES = (32, 48)
ONLY = {"onnx": "onnxruntime", "openvino": "openvino", "tflite": "litert"}
"""The interpreter that answers, by target."""


def section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    WRITERS["folders"](tmp_path / "data", scenes(60))
    return options(tmp_path, "folders", calibration_samples=6)


def options(folder: Path, layout: str, **changes: Any) -> dict[str, Any]:
    """The section of a config for `folder`/data."""
    return {
        "source": "masks", "path": str(folder / "data"), "layout": layout, "height": 48, "width": 64,
        "calibration_samples": 3, "cache": str(folder / "cache"), **changes,
    }  # fmt: skip


def read(folder: Path, layout: str, **changes: Any) -> Data:
    return load(parse(options(folder, layout, **changes), TASK))


def by_sample(data: Data) -> dict[bytes, np.ndarray]:
    """Of every sample its mask."""
    splits = (data.train, data.calibration, data.validation, data.test)
    return {x.tobytes(): y for split in splits for x, y in zip(split.x, split.y, strict=True)}


@pytest.mark.parametrize("layout", sorted(WRITERS))
def test_samples_and_masks_are_those_of_the_scene(layout: str, tmp_path: Path) -> None:
    made = scenes(40)
    WRITERS[layout](tmp_path / "data", made)
    data = read(tmp_path, layout)
    assert data.classes == CLASSES
    assert data.train.y.dtype == np.uint8 and data.train.y.shape[1:] == (48, 64)
    found, expected = by_sample(data), {scene.pixels.tobytes(): scene.mask for scene in made}
    assert set(found) == set(expected)
    for key, mask in expected.items():
        np.testing.assert_array_equal(found[key], mask)
    assert len(data.test) == sum(scene.split == "test" for scene in made)


@pytest.mark.parametrize("layout", sorted(WRITERS))
def test_a_zip_is_read_as_the_folder_is(layout: str, tmp_path: Path) -> None:
    WRITERS[layout](tmp_path / "data", scenes(20))
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        for path in sorted((tmp_path / "data").rglob("*.*")):
            archive.write(path, Path("wrapped") / path.relative_to(tmp_path / "data"))
    zipped, plain = (
        by_sample(read(tmp_path, layout, path=str(tmp_path / "data.zip"))),
        by_sample(read(tmp_path, layout)),
    )
    assert set(zipped) == set(plain)
    for key in plain:
        np.testing.assert_array_equal(zipped[key], plain[key])


def test_grey_masks_and_masks_of_two_values_are_indices_too(tmp_path: Path) -> None:
    made = scenes(20)
    WRITERS["folders"](tmp_path / "data", made)
    for path in (tmp_path / "data/masks").rglob("*.png"):
        Image.fromarray(np.asarray(Image.open(path))).save(path)
    assert all((by_sample(read(tmp_path, "folders"))[scene.pixels.tobytes()] == scene.mask).all() for scene in made)
    (tmp_path / "data/data.yaml").write_text("names: {0: ground, 1: disc}")
    for scene in made:
        path = tmp_path / "data/masks" / scene.split / f"{scene.name}.png"
        Image.fromarray(scene.mask == 1).save(path)
        assert Image.open(path).mode == "1"
    found = by_sample(read(tmp_path, "folders"))
    assert all((found[scene.pixels.tobytes()] == (scene.mask == 1)).all() for scene in made)


@pytest.mark.parametrize("fit", ["letterbox", "stretch"])
@pytest.mark.parametrize("size", [(80, 80), (32, 48), (64, 32)])
def test_masks_lie_where_the_pictures_lie_and_bars_are_of_no_class(
    size: tuple[int, int], fit: str, tmp_path: Path
) -> None:
    """Each pixel of a sample has the class of the pixel that its middle lies in; Pillow's own nearest filter agrees."""
    made = scenes(20, (70, 31))
    WRITERS["voc"](tmp_path / "data", made)
    width, height = size
    data = read(tmp_path, "voc", width=width, height=height, fit=fit)
    raw = RawSpec("image", (height, width, 3), "uint8", input_path=data.input_path)
    found, place = by_sample(data), input_path.picture_transform((70, 31), data.input_path[1])
    inside = np.s_[place.top : place.top + place.height, place.left : place.left + place.width]
    for scene in made:
        [sample] = inputs.samples(str(tmp_path / "data/JPEGImages" / f"{scene.name}.png"), raw)
        expected = np.full((height, width), UNKNOWN, np.uint8)
        expected[inside] = Image.fromarray(scene.mask).resize((place.width, place.height), Image.Resampling.NEAREST)
        np.testing.assert_array_equal(found[sample.raw.tobytes()], expected)
        assert (expected == UNKNOWN).mean() > (0.3 if fit == "letterbox" and size == (80, 80) else 0)


def test_a_picture_that_stands_on_its_side_has_a_mask_as_it_is_seen(tmp_path: Path) -> None:
    made = scenes(20)
    WRITERS["folders"](tmp_path / "data", made)
    tag = Image.Exif()
    tag[0x0112] = 6
    for path in (tmp_path / "data/images").rglob("*.png"):
        Image.open(path).transpose(Image.Transpose.ROTATE_90).save(path, exif=tag)
    found = by_sample(read(tmp_path, "folders"))
    assert all((found[scene.pixels.tobytes()] == scene.mask).all() for scene in made)


def test_vocs_classes_have_their_names_without_a_file(tmp_path: Path) -> None:
    made = scenes(20)
    WRITERS["voc"](tmp_path / "data", made)
    (tmp_path / "data/classes.txt").unlink()
    assert mask_layouts.VOC_CLASSES[15] == "person" and len(mask_layouts.VOC_CLASSES) == 21
    with pytest.raises(DataError, match="no pixel of class 'bird', 'boat'"):
        read(tmp_path, "voc")


def test_lists_of_voc_for_other_tasks_do_not_matter_and_unlisted_masks_are_reported(tmp_path: Path) -> None:
    made = scenes(30)
    WRITERS["voc"](tmp_path / "data", made)
    (tmp_path / "data/ImageSets/Main").mkdir()
    (tmp_path / "data/ImageSets/Main/val.txt").write_text("".join(f"{scene.name}\n" for scene in made))
    lists = tmp_path / "data/ImageSets/Segmentation/train.txt"
    lists.write_text("".join(lists.read_text().splitlines(keepends=True)[2:]))
    data = read(tmp_path, "voc")
    assert len(by_sample(data)) == 28
    assert any("2 masks without a picture, or in no list; the first is SegmentationClass/" in it for it in data.notes)


def test_without_lists_all_pictures_with_a_mask_are_in_train(tmp_path: Path) -> None:
    WRITERS["voc"](tmp_path / "data", scenes(30))
    for path in (tmp_path / "data/ImageSets/Segmentation").glob("*.txt"):
        path.unlink()
    (tmp_path / "data/SegmentationClass/scene000.png").unlink()
    assert len(by_sample(read(tmp_path, "voc"))) == 29


def _mask(change: Callable[[Image.Image], Image.Image | bytes | None]) -> Callable[[Path], None]:
    """The first mask, changed."""

    def broken(home: Path) -> None:
        path = sorted((home / "masks/train").glob("*.png"))[0]
        made = change(Image.open(path))
        if made is None:
            path.unlink()
        elif isinstance(made, bytes):
            path.write_bytes(made)
        else:
            made.save(path, "PNG")

    return broken


def _with_index(mask: Image.Image) -> Image.Image:
    pixels = np.array(mask)
    pixels[0, 0] = 7
    return indexed(pixels)


BAD: dict[str, tuple[Callable[[Path], None], str]] = {
    "another size": (_mask(lambda mask: mask.resize((65, 48))), "65×48 pixels, but the upright picture has 64×48"),
    "an index without a name": (_mask(_with_index), "its mask: index 7 has no name; 3 classes are named"),
    "no mask": (_mask(lambda mask: None), "no mask"),
    "RGB": (_mask(lambda mask: mask.convert("RGB")), "its mask: mode RGB; save the index of each pixel's class"),
    "16 bits": (_mask(lambda mask: Image.fromarray(np.zeros((48, 64), np.uint16))), "its mask: mode I;16"),
    "no PNG": (_mask(lambda mask: b"no picture"), "its mask: cannot identify image file"),
    "a broken picture": (
        lambda home: sorted((home / "images/train").glob("*"))[0].write_bytes(b"x"), "cannot identify image file",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_pair_is_refused_and_a_few_are_skipped_and_named(fault: str, tmp_path: Path) -> None:
    change, message = BAD[fault]
    WRITERS["folders"](tmp_path / "data", scenes(40))
    change(tmp_path / "data")
    with pytest.raises(DataError, match=r"1 of 40 pictures cannot be read with their masks, more than") as caught:
        read(tmp_path, "folders")
    assert message in str(caught.value) and "\n" not in str(caught.value)
    data = read(tmp_path, "folders", max_bad_fraction=0.05)
    assert len(by_sample(data)) == 39
    [note] = [note for note in data.notes if note.startswith("skipped 1 pictures that cannot be read")]
    assert "images/train/scene001.png (" in note and message in note


def _twice(ending: str) -> Callable[[Path], None]:
    """Another picture of the first one's name, upside down."""

    def add(home: Path) -> None:
        first = home / "images/train/scene001.png"
        Image.open(first).transpose(Image.Transpose.ROTATE_180).convert("RGB").save(first.with_suffix(ending))

    return add


BROKEN: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "two pictures of one mask": (
        "folders", _twice(".jpg"),
        r"^images/train/scene001.jpg and images/train/scene001.png: both belong to the mask masks/train/scene001.png",
    ),
    "two pictures that differ in capitals": (
        "folders", _twice(".PNG"), "images/train/scene001.PNG and images/train/scene001.png: both belong to the mask",
    ),
    "no names": ("folders", lambda home: (home / "data.yaml").unlink(), "the classes have no names"),
    "names twice": ("folders", lambda home: (home / "data.yaml").write_text("names: [a, a, b]"), "listed twice"),
    "a name too many": (
        "folders", lambda home: (home / "data.yaml").write_text("names: [a, b, c, d]"), "no pixel of class 'd'",
    ),
    "one class": ("folders", lambda home: (home / "data.yaml").write_text("names: [a]"), "index 1 has no name"),
    "another layout": ("voc", lambda home: None, "no picture in it has a mask; expected images/SPLIT/NAME.jpg"),
    "no picture": ("voc", lambda home: (home / "JPEGImages/scene001.png").unlink(), "scene001: there is no picture"),
    "two splits": (
        "voc", lambda home: (home / "ImageSets/Segmentation/val.txt").write_text("scene000\n"), "belongs to one split",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_invalid_data_are_refused_in_one_line_that_says_where(fault: str, tmp_path: Path) -> None:
    layout, change, message = BROKEN[fault]
    WRITERS[layout](tmp_path / "data", scenes(20))
    change(tmp_path / "data")
    with pytest.raises(DataError, match=message) as caught:
        read(tmp_path, "folders" if fault == "another layout" else layout)
    assert "\n" not in str(caught.value)


def test_pictures_of_one_name_in_two_splits_keep_their_own_masks(tmp_path: Path) -> None:
    made = scenes(30)
    WRITERS["folders"](tmp_path / "data", made)
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind / "test/scene000.png").rename(tmp_path / "data" / kind / "test/scene001.png")
    found = by_sample(read(tmp_path, "folders"))
    assert len(found) == 30 and all((found[each.pixels.tobytes()] == each.mask).all() for each in made)


def test_a_limit_keeps_the_splits_in_proportion(tmp_path: Path) -> None:
    WRITERS["voc"](tmp_path / "data", scenes(60))
    data = read(tmp_path, "voc", limit=20)
    assert len(data.test) == 10
    assert len(data.train) + len(data.calibration) + len(data.validation) == 20


def test_masks_whose_suffix_is_in_capitals_are_read(tmp_path: Path) -> None:
    WRITERS["folders"](tmp_path / "data", scenes(20))
    for path in (tmp_path / "data/masks").rglob("*.png"):
        path.rename(path.with_suffix(".PNG"))
    assert len(by_sample(read(tmp_path, "folders"))) == 20


def test_a_folder_of_masks_beside_train_that_is_no_split_is_refused(tmp_path: Path) -> None:
    WRITERS["folders"](tmp_path / "data", scenes(20))
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind / "test").rename(tmp_path / "data" / kind / "holdout")
    with pytest.raises(DataError, match="images/holdout: 'holdout' is not the name of a split, allowed here"):
        read(tmp_path, "folders")
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind / "holdout").rename(tmp_path / "data" / kind / "Test")
    assert len(read(tmp_path, "folders").test) == 7


def network(target: str, folder: Path) -> tuple[dict[str, bytes], TensorSpec, TensorSpec]:
    """A convolution of 3×3 with stride 2 and random weights, for three classes, as each target has it."""
    import onnx
    import openvino
    import tensorflow as tf
    from onnx import helper, numpy_helper

    weights = np.random.default_rng(11).normal(0, 1, (3, 3, 3, 3)).astype(np.float32)  # out, in, 3, 3
    height, width = SIDES
    ends = TensorSpec("input", (1, 3, height, width), "float32", "NCHW"), (1, 3, height // 2, width // 2)
    output = TensorSpec("output", ends[1], "float32", "ANY")
    if target == "tflite":

        @tf.function(input_signature=[tf.TensorSpec((1, height, width, 3), tf.float32)])
        def run(x: Any) -> Any:
            return tf.transpose(tf.nn.conv2d(x, weights.transpose(2, 3, 1, 0), 2, "SAME"), (0, 3, 1, 2))

        made = tf.lite.TFLiteConverter.from_concrete_functions([run.get_concrete_function()]).convert()
        return {"m.tflite": made}, TensorSpec("x", (1, height, width, 3), "float32", "NHWC"), output
    node = helper.make_node("Conv", ["input", "w"], ["output"], strides=[2, 2], pads=[0, 0, 1, 1])
    ports = [helper.make_tensor_value_info(each.name, onnx.TensorProto.FLOAT, each.shape) for each in (ends[0], output)]
    graph = helper.make_graph([node], "conv", ports[:1], ports[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    if target == "onnx":
        return {"m.onnx": bytes(model)}, ends[0], output
    openvino.save_model(openvino.Core().read_model(model, b""), folder / "m.xml", compress_to_fp16=False)
    return {name: (folder / name).read_bytes() for name in ("m.xml", "m.bin")}, ends[0], output


@pytest.mark.slow
@pytest.mark.parametrize("target", ONLY)
def test_every_file_gets_the_evaluations_own_mask(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pictures of many sizes, modes and turns, as they lie there: the evaluation's classes, in the file's pixels."""
    from pycocotools import mask as coco

    odd = odd_pictures(tmp_path / "data")
    data = read(tmp_path, "folders", height=SIDES[0], width=SIDES[1])
    raw = RawSpec("image", (*SIDES, 3), "uint8", input_path=data.input_path)
    content, source, result = network(target, tmp_path)
    backend = open_backend(target, content, (source,), (result,), interpreter=ONLY[target])
    steps = [{"step": "scale", "factor": 1 / 255}]

    def evaluated(x: np.ndarray) -> np.ndarray:
        outputs: np.ndarray = backend.run(transform.to_layout(transform.apply(steps, x[None]), source.layout))[0]
        return outputs

    known = by_sample(data)
    goldens = data.train.x[:2]
    golden = {"i.npy": npy(np.asarray(goldens)), "o.npy": npy(np.stack([evaluated(x) for x in goldens]))}
    path = tmp_path / "b.edge.zip"
    manifest = Manifest(
        name="shapes", version="1.0.0", target=target, variant="baseline", raw=raw, inputs=(source,), outputs=(result,),
        preprocess=steps, labels=list(CLASSES), model_files=sorted(content), task=TASK, activation="none",
        golden={"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-4, "top1": False},
    )  # fmt: skip
    bundle.write(path, manifest, {**content, **golden})
    flags = ("--json", "--no-trial", "--threads", "1", "--interpreter", ONLY[target])
    assert main(["predict", str(path), str(tmp_path / "data/images"), *flags]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["input"] for each in answers} == {str(each) for each in odd}
    several = 0
    for answer in answers:
        [sample] = inputs.samples(answer["input"], raw)
        assert sample.raw.tobytes() in known  # what training reads
        cells = evaluated(sample.raw).argmax(axis=0)
        (width, height), place = sample.size, input_path.picture_transform(sample.size, data.input_path[1])
        rows = [(place.top + (2 * row + 1) * place.height // (2 * height)) // 2 for row in range(height)]
        columns = [(place.left + (2 * column + 1) * place.width // (2 * width)) // 2 for column in range(width)]
        expected = cells[np.ix_(rows, columns)]
        found = np.full((height, width), UNKNOWN)
        for each in answer["masks"]:
            rle = {"size": each["size"], "counts": each["counts"]}
            found[coco.decode(coco.frPyObjects(rle, *rle["size"])) > 0] = CLASSES.index(each["label"])
        np.testing.assert_array_equal(found, expected)
        assert answer["shares"] == {name: (expected == place).mean() for place, name in enumerate(CLASSES)}
        several += len(answer["masks"]) > 1
    assert several > len(answers) / 2
    assert device.UNKNOWN == UNKNOWN


def odd_pictures(home: Path) -> list[Path]:
    """120 of 20×20 to 90×70 pixels, in several modes and formats, some with an EXIF turn; each with a mask."""
    random, found = np.random.default_rng(19), []
    for folder in ("images", "masks"):
        (home / folder / "train").mkdir(parents=True)
    (home / "data.yaml").write_text(f"names: {list(CLASSES)}")
    for number in range(120):
        form, ending = odd_files.FORMS[number % len(odd_files.FORMS)]
        pixels = random.integers(0, 256, (*random.integers(20, (70, 90)), 3)) * random.uniform(0.2, 1, 3)
        mode = ("RGB", "L")[number % 3 == 0 and form != "WEBP"]
        exif = Image.Exif()
        if number % 4 == 0:
            exif[0x0112] = 1 + number // 4 % 8
        path = home / "images/train" / f"{number:03}.{ending}"
        Image.fromarray(pixels.astype(np.uint8)).convert(mode).save(path, form, exif=exif)
        upright = upright_size(path)
        indexed(random.integers(0, 3, upright[::-1]).astype(np.uint8)).save(home / "masks/train" / f"{number:03}.png")
        found.append(path)
    return found


def upright_size(path: Path) -> tuple[int, int]:
    """(width, height) as it is seen, by Pillow's own word."""
    from PIL import ImageOps

    with Image.open(path) as image:
        return ImageOps.exif_transpose(image).size
