"""What a converter raised, told as operator, layer, cause and alternative."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.targets import failures, openvino, tflite
from edgekit.targets.failures import Failure
from tests.zoo.entries import ENTRIES


def failed(name: str, target: object, tmp_path: Path) -> Failure:
    next(entry for entry in ENTRIES if entry.name == name).save(tmp_path / "model")
    with pytest.raises(Exception) as caught:
        target.convert(tmp_path / "model", "fp32", None, tmp_path / "made")  # type: ignore[attr-defined]
    return failures.classify(caught.value, tmp_path / "model")


def test_an_operator_that_a_target_has_not(tmp_path: Path) -> None:
    found = failed("Spectrum", tflite, tmp_path)
    assert (found.kind, found.operator) == ("operator", "_fft_r2c")
    assert found.layer == "the network's own forward" and found.place.startswith("networks.py:")
    assert "Only 1D FFT" in found.cause and "before the network" in found.alternative
    assert found.told().startswith("_fft_r2c: NotImplementedError: Only 1D FFT")


def test_control_flow_that_depends_on_values(tmp_path: Path) -> None:
    found = failed("Branching", tflite, tmp_path)
    assert found.kind == "control flow" and found.place.startswith("networks.py:")
    assert "torch.where" in found.told()


def test_a_window_that_is_too_large(tmp_path: Path) -> None:
    found = failed("EfficientNet, transformers", openvino, tmp_path)
    assert found.kind == "shape" and "AdaptiveAvgPool2d(1)" in found.told()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("No conversion rule found for operations: aten::linalg_svd", "operator"),
        ("Lowering not found: aten.special_bessel_j0.default", "operator"),
        ("Could not extract specialized integer from data-dependent expression u0", "control flow"),
        ("the moon is full", "other"),
    ],
)
def test_other_words(words: str, kind: str) -> None:
    found = failures.classify(RuntimeError(f"first line\n{words}\nlast line"))
    assert found.kind == kind
    assert "\n" not in found.told() and found.alternative in found.told()


def test_the_innermost_error_is_told() -> None:
    try:
        try:
            raise KeyError("the cause")
        except KeyError as inner:
            raise RuntimeError("around it") from inner
    except RuntimeError as error:
        assert "KeyError: 'the cause'" in failures.classify(error).told()
