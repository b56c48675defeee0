"""Masks on the device: cells as pixels, back into the picture, in COCO's encoding, and through a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runner import bundle, load, masks
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.cli import main
from edgekit.runner.errors import BackendError, BundleError
from edgekit.runner.input_path import picture_steps
from edgekit.runner.postprocess import make_postprocessor, picture_mapper
from tests.runner.conftest import npy

SHAPE, LABELS = (8, 12), ["ground", "disc", "bar"]
INPUT = TensorSpec("input", (1, 3, *SHAPE), "float32", "NCHW")
OUTPUT = TensorSpec("output", (1, 3, 4, 6), "float32", "ANY")


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "name": "shapes", "version": "1.0.0", "target": "onnx", "variant": "baseline-fp32", "task": "segmentation",
        "raw": RawSpec("image", (*SHAPE, 3), "uint8", input_path=tuple(picture_steps((*SHAPE, 3), "letterbox"))),
        "inputs": (INPUT,), "outputs": (OUTPUT,), "preprocess": [{"step": "scale", "factor": 1 / 255}],
        "labels": LABELS, "model_files": ["model.onnx"], "activation": "none",
        "golden": {"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-4, "top1": False},
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def onnx_model() -> bytes:
    """Each channel's mean over 2×2 pixels is the logit of a class: what is red is ground, green disc, blue bar."""
    import onnx
    from onnx import helper

    node = helper.make_node("AveragePool", ["input"], ["output"], kernel_shape=[2, 2], strides=[2, 2])
    ends = [helper.make_tensor_value_info(each.name, onnx.TensorProto.FLOAT, each.shape) for each in (INPUT, OUTPUT)]
    graph = helper.make_graph([node], "pool", ends[:1], ends[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    content = {"model.onnx": onnx_model()}
    raw = np.random.default_rng(0).integers(0, 256, (2, *SHAPE, 3)).astype(np.uint8)
    means = raw.reshape(2, 4, 2, 6, 2, 3).mean(axis=(2, 4)).transpose(0, 3, 1, 2) / 255
    path = tmp_path / "shapes.edge.zip"
    golden = {"i.npy": npy(raw), "o.npy": npy(means.astype(np.float32))}
    bundle.write(path, manifest(), {**content, **golden})
    return path


def test_the_nearest_old_pixel_is_the_one_below_the_middle_of_the_new_one() -> None:
    assert masks.nearest_indices(3, 6).tolist() == [1, 3, 5]
    assert masks.nearest_indices(6, 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert masks.nearest_indices(4, 4).tolist() == [0, 1, 2, 3]
    for after, before in ((7, 3), (3, 7), (160, 481), (2048, 17)):
        found, middle = masks.nearest_indices(after, before), (np.arange(after) + 0.5) * before / after
        assert ((found <= middle + 1e-9) & (middle < found + 1 + 1e-9)).all()
        assert (
            np.asarray(Image.fromarray(np.arange(before, dtype=np.uint8)[None]).resize((after, 1), 0)).tolist()[0]
            == [value % 256 for value in found.tolist()]
            or after * before % 2 == 0
        )


@pytest.mark.parametrize("grid", [(3, 6), (4, 4), (5, 7), (16, 24), (0, 0)])
def test_a_grid_that_does_not_fit_is_refused(grid: tuple[int, int]) -> None:
    with pytest.raises(BundleError, match="height and width must be the same"):
        masks.cell_size(SHAPE, grid)


def test_run_lengths_are_cocos() -> None:
    from pycocotools import mask as coco

    random = np.random.default_rng(3)
    for size in ((1, 1), (1, 9), (9, 1), (31, 17), (40, 64)):
        mask = random.integers(0, 3, size).astype(np.uint8).repeat(2, axis=0)
        found = masks.run_lengths(mask)
        assert sorted(found) == np.unique(mask).tolist()
        for kind, rle in found.items():
            assert json.loads(json.dumps(rle)) == rle and sum(rle["counts"]) == mask.size
            decoded = coco.decode(coco.frPyObjects(rle, *rle["size"]))
            np.testing.assert_array_equal(decoded, mask == kind)


def test_an_answer_has_a_pixel_for_each_of_the_picture() -> None:
    """24×8 pixels lie in the sample as 12×4, between two bars of 2 rows: each cell of 2×2 becomes 4×4."""
    found = make_postprocessor(manifest())(np.zeros((3, 4, 6), np.float32), 1, {})
    assert found.mask.shape == SHAPE and found.shares == {"ground": 1.0, "disc": 0.0, "bar": 0.0}
    outputs = np.zeros((3, 4, 6), np.float32)
    outputs[1, 0], outputs[2, 1, :2], outputs[1, 2, 5] = 1, 1, 1
    put = picture_mapper(manifest())
    assert put is not None
    placed = put(make_postprocessor(manifest())(outputs, 1, {}), manifest().raw, (24, 8))
    expected = np.zeros((8, 24), np.uint8)
    expected[:4, :8], expected[4:, 20:] = 2, 1
    np.testing.assert_array_equal(placed.mask, expected)
    assert placed.shares == {"ground": 144 / 192, "disc": 16 / 192, "bar": 32 / 192}
    assert placed.lines() == ["ground", "   75.00%  ground", "   16.67%  bar", "    8.33%  disc"]
    assert [each["label"] for each in placed.to_dict()["masks"]] == LABELS


def test_a_bundle_answers_a_file_in_its_own_pixels(packed: Path, tmp_path: Path, capsys: Any) -> None:
    from pycocotools import mask as coco

    picture = np.zeros((16, 48, 3), np.uint8)
    picture[..., 0], picture[:8, 16:32], picture[8:, 40:] = 200, (0, 200, 0), (0, 0, 200)
    Image.fromarray(picture).save(tmp_path / "p.png")
    assert main(["predict", str(packed), str(tmp_path / "p.png"), "--json", "--no-trial"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["shares"] == pytest.approx({"ground": 5 / 8 + 1 / 24, "disc": 1 / 6, "bar": 1 / 12}, abs=0.13)
    decoded = {each["label"]: coco.decode(coco.frPyObjects({"size": each["size"], "counts": each["counts"]}, 16, 48))
               for each in answer["masks"]}  # fmt: skip
    assert decoded["disc"][2:6, 20:28].all() and not decoded["disc"][10:].any()
    assert decoded["bar"][11:, 44:].all() and sum(each.astype(int) for each in decoded.values()).tolist() == [
        [1] * 48 for _ in range(16)
    ]
    raw = np.zeros((*SHAPE, 3), np.uint8)
    raw[..., 1] = 9
    found = load(packed, trial=False).predict(raw)
    assert found.mask.shape == SHAPE and found.shares["disc"] == 1
    assert main(["predict", str(packed), str(tmp_path / "p.png"), "--no-trial"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("ground")


def test_outputs_that_are_not_finite_are_no_answer(packed: Path) -> None:
    with pytest.raises(BackendError, match="NaN or infinite"):
        load(packed, trial=False).answer(np.zeros((*SHAPE, 3), np.uint8), np.full((3, 4, 6), np.nan), 1, {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["a", "b"]}, r"use one of \[1, 2, rows, columns\]"),
        ({"labels": ["a", "a", "b"]}, "need names of their own"),
        ({"outputs": (replace(OUTPUT, shape=(1, 3, 3, 6)),)}, "a grid of 3×6 cells over 8×12 pixels"),
        ({"outputs": (replace(OUTPUT, shape=(1, 3, 24)),)}, "rows, columns"),
        ({"outputs": (OUTPUT, replace(OUTPUT, name="b"))}, "use one of"),
        ({"activation": "softmax"}, "segmentation: none"),
        ({"boxes": {"most": 1}}, "the task segmentation has none"),
        ({"threshold": 1.0}, "the task segmentation has none"),
    ],
)
def test_a_manifest_that_does_not_hold_together_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match=message):
        bundle.write(tmp_path / "x.edge.zip", manifest(**changes), {"model.onnx": b"", "i.npy": b"", "o.npy": b""})
