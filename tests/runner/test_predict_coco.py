"""`edgerun predict --coco`: results that pycocotools takes, in the pixels of the pictures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.cli import main
from edgekit.runner.input_path import picture_steps
from tests.runner.conftest import npy
from tests.runner.test_several_outputs import LABELS, SHAPE, expected_outputs, files, images, manifest

FIXED = ("--no-trial", "--interpreter", "onnxruntime")
Pack = Callable[..., Path]


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Writes a bundle whose boxes are known; its arguments replace fields of the manifest."""
    content = files("onnx", tmp_path_factory.mktemp("model"))
    golden = {"i.npy": npy(images(2)), "o.npy": npy(expected_outputs(images(2)).astype(np.float32))}

    def write(**changes: Any) -> Path:
        path = tmp_path_factory.mktemp("packed") / "cells.edge.zip"
        bundle.write(path, manifest("onnx", {"model.onnx": b""}, **changes), {**content, **golden})
        return path

    return write


@pytest.fixture(scope="module")
def packed(pack: Pack) -> Path:
    return pack()


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Three pictures, two of them named by numbers, in twice and three times the sample's size."""
    home = tmp_path / "in"
    home.mkdir()
    for name, image in zip(("000012.png", "7.jpg", "cells 3.png"), images(3), strict=True):
        Image.fromarray(image).resize((96, 96), Image.Resampling.NEAREST).save(home / name)
    return home


def predict(*arguments: object) -> int:
    return main(["predict", *map(str, arguments), *FIXED])


def read(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text()))


def test_boxes_are_those_of_json_with_left_top_width_and_height(
    packed: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results.json"
    assert predict(packed, pictures, "--json", "--coco", out) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ids = {"000012.png": 12, "7.jpg": 7, "cells 3.png": "cells 3.png"}
    expected: list[dict[str, Any]] = []
    for answer in answers:
        for box in answer["boxes"]:
            left, top, right, bottom = box["box"]
            expected.append(
                {
                    "image_id": ids[Path(answer["input"]).name], "category_id": LABELS.index(box["label"]) + 1,
                    "bbox": [left, top, max(0, right - left), max(0, bottom - top)], "score": box["probability"],
                }
            )  # fmt: skip
    assert read(out) == expected and len({each["image_id"] for each in expected}) == 3
    assert max(each["bbox"][1] + each["bbox"][3] for each in expected) > SHAPE[0]


def test_pycocotools_takes_the_results(packed: Path, pictures: Path, tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    out = tmp_path / "results.json"
    assert predict(packed, pictures / "000012.png", pictures / "7.jpg", "--coco", out) == 0
    truth = coco.COCO()
    truth.dataset = {
        "images": [{"id": each, "width": 96, "height": 96} for each in (7, 12)], "annotations": [],
        "categories": [{"id": number, "name": label} for number, label in enumerate(LABELS, 1)],
    }  # fmt: skip
    truth.createIndex()
    loaded = truth.loadRes(str(out))
    assert len(loaded.getAnnIds()) == len(read(out)) > 0
    assert sorted(loaded.getImgIds()) == [7, 12]
    assert all(0 <= each["area"] <= 96 * 96 for each in loaded.loadAnns(loaded.getAnnIds()))


def test_batches_give_the_same_results(packed: Path, pictures: Path, tmp_path: Path) -> None:
    for name, more in (("one.json", ()), ("two.json", ("--batch", 1))):
        assert predict(packed, pictures, "--coco", tmp_path / name, *more) == 0
    assert read(tmp_path / "one.json") == read(tmp_path / "two.json")


def test_a_picture_that_is_named_twice_counts_once(packed: Path, pictures: Path, tmp_path: Path) -> None:
    picture = pictures / "7.jpg"
    assert predict(packed, picture, "--coco", tmp_path / "one.json") == 0
    assert predict(packed, picture, picture, "--coco", tmp_path / "two.json") == 0
    assert read(tmp_path / "one.json") == read(tmp_path / "two.json")


def test_a_bad_picture_is_reported_and_the_others_are_written(
    packed: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (pictures / "8.png").write_bytes(b"no picture")
    out = tmp_path / "results.json"
    assert predict(packed, pictures, "--coco", out) != 0
    assert "1 of 4 inputs got no answer" in capsys.readouterr().err
    assert {each["image_id"] for each in read(out)} == {7, 12, "cells 3.png"}


def test_pictures_without_boxes_give_an_empty_list(pack: Pack, pictures: Path, tmp_path: Path) -> None:
    options = {"least_probability": 0.9999999, "overlap": 0.5, "most": 100}
    assert predict(pack(boxes=options), pictures, "--coco", tmp_path / "results.json") == 0
    assert read(tmp_path / "results.json") == []


def test_two_pictures_of_one_id_are_refused(
    packed: Path, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(images(1)[0]).save(pictures / "012.png")
    assert predict(packed, pictures, "--coco", tmp_path / "results.json") != 0
    output = capsys.readouterr()
    assert "have the same image_id, 12; give them different names" in output.err and not output.out
    assert not (tmp_path / "results.json").exists()


def test_a_bundle_that_crops_is_refused(
    pack: Pack, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = RawSpec("image", (*SHAPE, 3), "uint8", input_path=tuple(picture_steps((*SHAPE, 3), "crop")))
    assert predict(pack(raw=raw), pictures, "--coco", tmp_path / "results.json") != 0
    assert "the bundle crops pictures" in capsys.readouterr().err


def test_a_bundle_of_another_task_is_refused(
    pack: Pack, pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = pack(task="raw", boxes=None, labels=[], activation="none")
    assert predict(path, pictures, "--coco", tmp_path / "results.json") != 0
    assert "COCO results hold boxes, but the task of the bundle is raw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("", "is not a file; name one"),
        (".", "is not a file; name one"),
        ("none/results.json", "there is no folder none; make it"),
        ("7.jpg", "is one of the inputs; name another file"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused(
    out: str, message: str, packed: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(pictures)
    assert predict(packed, "7.jpg", "--coco", out) != 0
    assert message in capsys.readouterr().err


def test_frames_of_a_stream_are_refused(packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "results.json"
    assert predict(packed, "--stream", "rgb24", "--size", "96x96", "--coco", out) != 0
    assert "give pictures instead of --stream" in capsys.readouterr().err
