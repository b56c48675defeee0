"""The `head` of a manifest: what a bad one is refused for, by its key."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from edgekit.runner.box_heads import BoxHead
from edgekit.runner.bundle import manifest_json
from edgekit.runner.bundle.manifest import Manifest, RawSpec, TensorSpec
from edgekit.runner.errors import BundleError
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for

SIZE, LABELS = (48, 64), ["RBC", "WBC", "Platelets"]
POINTS = 60
IMAGE = TensorSpec("images", (1, 3, *SIZE), "float32", "NCHW")
MODEL = ModelFiles("onnx", {"model.onnx": b"model"}, IMAGE, IMAGE, 1e-4)
FACTS = {"bytes": 5, "sha256": "0" * 64}
MEMBERS = {name: FACTS for name in ("model.onnx", "golden/inputs.npy", "golden/outputs.npy")}
ANCHORS = [[[5.0, 6.0], [12, 9]], [[20, 30], [41.5, 17.25]]]
PRIORS = [
    {"cells": [6, 8], "step": [8, 8], "sizes": [[10, 12]]},
    {"cells": [2, 3], "step": [24, 21], "sizes": [[9, 9]] * 2},
]
PLAIN: dict[str, Any] = {
    "size": list(SIZE),
    "classes": 3,
    "parts": [["boxes", "classes"]],
    "boxes": "exponential",
    "scores": "logits",
}
FINISHED = {**PLAIN, "parts": [["boxes"], ["index"], ["score"], ["count"]], "boxes": "corners_yx", "scores": "index"}


def detector(head: dict[str, Any], *shapes: tuple[int, ...]) -> Manifest:
    outputs = tuple(TensorSpec(f"out{place}", (1, *each), "float32", "ANY") for place, each in enumerate(shapes))
    return manifest_for(
        MODEL, members=MEMBERS, task="detection", activation="sigmoid", labels=LABELS, head=head, outputs=outputs,
        raw=RawSpec("image", (*SIZE, 3), "uint8"), boxes={"least_probability": 0.05, "overlap": 0.5, "most": 100},
        golden={"inputs": "golden/inputs.npy", "outputs": "golden/outputs.npy", "atol": 1e-4, "top1": False},
    )  # fmt: skip


def parse(head: Any, *shapes: tuple[int, ...]) -> Manifest:
    """As a runner reads the manifest of a bundle."""
    fields = json.loads(manifest_json.to_json(detector(PLAIN, *(shapes or [(POINTS, 7)]))))
    return manifest_json.parse(json.dumps({**fields, "head": head}).encode())


@pytest.mark.parametrize(
    ("head", "shapes", "converted"),
    [
        (PLAIN, [(POINTS, 7)], (POINTS, 7)),
        ({**PLAIN, "boxes": "distances", "bins": 16}, [(POINTS, 67)], (POINTS, 7)),
        ({**PLAIN, "boxes": "anchors", "anchors": ANCHORS}, [(2 * POINTS, 7)], (2 * POINTS, 7)),
        ({**PLAIN, "boxes": "priors", "priors": PRIORS, "variances": [0.1, 0.2]}, [(60, 7)], (60, 7)),
        ({**PLAIN, "boxes": "corners", "scores": "softmax", "background": 3}, [(17, 8)], (17, 7)),
        (FINISHED, [(10, 4), (10,), (10,), (1,)], (10, 7)),
        (BoxHead(SIZE, 3)._asdict(), [(POINTS, 7)], (POINTS, 7)),
    ],
)
def test_the_heads_of_detectors_are_read_and_written(
    head: dict[str, Any], shapes: list[tuple[int, ...]], converted: tuple[int, int]
) -> None:
    made = parse(head, *shapes)
    assert made.output_shape == converted
    assert manifest_json.parse(manifest_json.to_json(made)) == made


def test_a_detection_without_a_head_has_no_key() -> None:
    fields = json.loads(manifest_json.to_json(detector(PLAIN, (POINTS, 7))))
    del fields["head"]
    text = manifest_json.to_json(manifest_json.parse(json.dumps(fields).encode()))
    assert b'"head"' not in text


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in PLAIN.items() if name != key}


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (None, "head: got 'None'; leave the key out"),
        ([], "head: got .*must be an object"),
        *((without(key), rf"head: .*missing keys \['{key}'\]") for key in PLAIN),
        ({**PLAIN, "nms": True}, r"unknown keys \['nms'\]"),
        ({**PLAIN, "size": [48]}, "head.size"),
        ({**PLAIN, "size": [64, 48]}, r"head.size: got '\[64, 48\]'; the sample has \[48, 64\]"),
        ({**PLAIN, "classes": 2}, "head.classes: got '2'; there are 3 labels"),
        ({**PLAIN, "classes": True}, "head.classes"),
        ({**PLAIN, "parts": []}, "head.parts"),
        ({**PLAIN, "parts": "boxes"}, "head.parts"),
        ({**PLAIN, "parts": [[]]}, "head.parts"),
        ({**PLAIN, "parts": [["boxes", "boxes", "classes"]]}, "head.parts"),
        ({**PLAIN, "parts": [["boxes", "angles"]]}, "head.parts"),
        ({**PLAIN, "parts": [["boxes", ["classes"]]]}, "head.parts"),
        ({**PLAIN, "parts": [["classes"]]}, "its scores need boxes, classes"),
        ({**PLAIN, "scores": "index"}, "its scores need boxes, index, score"),
        ({**PLAIN, "boxes": "polygons"}, "head.boxes"),
        ({**PLAIN, "boxes": ["corners"]}, "head.boxes"),
        ({**PLAIN, "scores": "certain"}, "head.scores"),
        ({**PLAIN, "objectness": "softmax"}, "head.objectness"),
        ({**PLAIN, "points_last": 1}, "head.points_last"),
        ({**PLAIN, "normalized": "yes"}, "head.normalized"),
        ({**PLAIN, "bins": 0}, "head.bins"),
        ({**PLAIN, "bins": 65}, "head.bins"),
        ({**PLAIN, "background": -1}, "head.background"),
        ({**PLAIN, "background": 4}, "head.background: got '4'; at most 3 for 3 classes"),
        ({**PLAIN, "first_index": 10**10}, "head.first_index"),
        ({**PLAIN, "first_index": 0.5}, "head.first_index"),
        ({**PLAIN, "anchors": [[[5, 0]]]}, "head.anchors"),
        ({**PLAIN, "anchors": {"8": [[5, 5]]}}, "head.anchors"),
        ({**PLAIN, "anchors": [[[5, 5]] * 65]}, "head.anchors"),
        ({**PLAIN, "priors": [{"cells": [6, 8], "step": [8, 8]}]}, "head.priors"),
        ({**PLAIN, "priors": [{**PRIORS[0], "cells": [6.5, 8]}]}, "head.priors"),
        ({**PLAIN, "priors": [{**PRIORS[0], "step": [0, 8]}]}, "head.priors"),
        ({**PLAIN, "variances": [0.1]}, "head.variances"),
        ({**PLAIN, "variances": [0.1, -0.2]}, "head.variances"),
        ({**PLAIN, "boxes": "priors", "priors": PRIORS[:1]}, "head.priors: got '48'; the outputs have 60 points"),
        ({**PLAIN, "boxes": "centre", "priors": PRIORS[:1]}, "head.priors: got '48'; the outputs have 60 points"),
        ({**PLAIN, "boxes": "anchors", "anchors": ANCHORS}, "head: 60 points .* no grids with 2 and 2 anchors"),
        ({**PLAIN, "parts": [["boxes"], ["classes"]]}, "head: the head has 2 outputs, but the model has 1"),
        ({**PLAIN, "bins": 16}, "head.bins"),
        ({**PLAIN, "boxes": "distances", "bins": 16}, r"head: an output has the shape \[60, 7\]"),
    ],
)  # fmt: skip
def test_a_bad_head_is_refused_by_its_key(head: Any, words: str) -> None:
    with pytest.raises(BundleError, match=f"manifest.json: .*{words}"):
        parse(head)


@pytest.mark.parametrize("code", ["distances", "exponential"])
def test_boxes_of_cells_need_cells(code: str) -> None:
    with pytest.raises(BundleError, match="head: 61 points for a picture of 64×48"):
        parse({**PLAIN, "boxes": code}, (61, 7))


def test_only_detections_have_heads() -> None:
    classifier = ModelFiles("onnx", {"model.onnx": b"model"}, NCHW, SCORES, 1e-4)
    text = manifest_json.to_json(manifest_for(classifier, members=MEMBERS, head=PLAIN))
    with pytest.raises(BundleError, match="head: .*the task classification has none"):
        manifest_json.parse(text)


def test_numbers_may_come_from_numpy() -> None:
    """`HeadDecoder` and the rules take the fields that `BoxHead` has, tuples too."""
    made = detector(
        BoxHead(SIZE, 3, boxes="anchors", anchors=tuple(map(tuple, np.array(ANCHORS).tolist())))._asdict(), (120, 7)
    )
    assert manifest_json.parse(manifest_json.to_json(made)).output_shape == (120, 7)
