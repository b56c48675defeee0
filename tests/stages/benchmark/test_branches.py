"""The sentence that says which outputs of a detector lost its accuracy in int8."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from edgekit.core.schema.branches import Branch, BranchLosses
from edgekit.report.sections import branches as section


def losses(lost_by: Branch, boxes: float, scores: float, fine: float, coarse: float) -> BranchLosses:
    reached = {"boxes": boxes, "scores": scores}
    return {
        "name": "baseline-int8-tflite",
        "reference": "baseline-fp32-tflite",
        "accuracy": 0.2,
        "reference_accuracy": 0.9,
        "lost_by": lost_by,
        "replaced": [
            {"branch": "boxes", "stride_pixels": None, "accuracy": reached["boxes"]},
            {"branch": "scores", "stride_pixels": None, "accuracy": reached["scores"]},
            {"branch": lost_by, "stride_pixels": 8, "accuracy": fine},
            {"branch": lost_by, "stride_pixels": 16, "accuracy": coarse},
        ],
    }


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (losses("boxes", 0.85, 0.25, 0.3, 0.7), "by its boxes, most on the grid of 16 pixels"),
        (losses("scores", 0.25, 0.85, 0.4, 0.4), "by its scores: with the boxes"),
    ],
)
def test_a_sentence_names_what_was_lost(row: BranchLosses, words: str) -> None:
    TypeAdapter(BranchLosses).validate_python(row)
    sentence = next(section.sentences([row])).replace("\u00a0", " ")
    assert sentence.startswith("baseline-int8-tflite falls from 90.00 % in float to 20.00 % ") and words in sentence
