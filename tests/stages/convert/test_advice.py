"""Advice for a file outside its tolerance names only what can help with what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_runs import spec_of

from edgekit.models import store
from edgekit.stages.convert.checker import Divergence, advise

ANSWERS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
QAT = "let quantize tune the network"


@pytest.fixture(scope="module")
def folder(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of convolutions, saved."""
    module, _ = trained("tiny")
    path: Path = tmp_path_factory.mktemp("net")
    store.save(path, module, spec_of("tiny"))
    return path


def test_float16_that_overflows_is_not_float16_with_too_few_bits(folder: Path) -> None:
    near, overflowed = ANSWERS + 0.1, np.where(ANSWERS > 2, np.float32(np.inf), ANSWERS)
    assert "11 bits are too few" in advise(Divergence(folder, "fp16", ANSWERS, near))
    assert "leave the range of float16" in advise(Divergence(folder, "fp16", ANSWERS, overflowed))


@pytest.mark.parametrize(
    ("changes", "has", "has_not"),
    [
        ({}, QAT, "nearly the same outputs"),
        ({"layer": "deep.0"}, "keep deep.0 in float (quantize.max_float_layers)", "calibration_samples"),
        ({"layer": "forward (bmm)"}, "replace forward (bmm), which has no weights", "max_float_layers"),
        ({"tuned": True}, "quantize.qat: false", QAT),
        ({"outputs": np.ones_like(ANSWERS)}, "the int8 file gives nearly the same outputs", "train it"),
        ({"reference": 5 + 1e-4 * ANSWERS + np.arange(3, dtype=np.float32)}, "train it longer", QAT),
        ({"precision": "w8"}, "loosen convert.further_min_", "QAT"),
        ({"precision": "int16x8"}, "leave int16x8 out of convert.precisions, or loosen convert.int8_min_", "QAT"),
        ({"precision": "fp32"}, "drop this target, or report it", "replace"),
        ({"precision": "fp32", "layer": "head"}, "replace head", "report"),
    ],
)
def test_each_option_is_one_that_can_help(folder: Path, changes: dict[str, Any], has: str, has_not: str) -> None:
    seen = {"precision": "int8", "reference": ANSWERS, "outputs": ANSWERS[:, ::-1], **changes}
    advice = advise(Divergence(folder, **seen))
    assert has in advice and has_not not in advice, advice
