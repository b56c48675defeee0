"""Which interpreters can read a bundle's file: its README and its requirements say so."""

from __future__ import annotations

from pathlib import Path

import pytest
import tomllib

from edgekit.stages.bundle.device import INTERPRETERS, readme, requirements
from tests.runner.stepped import manifest

OLDER = "tflite-runtime 'numpy<2'` instead"


@pytest.mark.parametrize("precision", ["int4", "int4_dense"])
def test_the_older_interpreter_is_not_offered_for_4_bit_weights(precision: str) -> None:
    text = readme(manifest("tflite", {}, variant=f"student-{precision}-tflite"), "x.edge.zip", [])
    assert OLDER not in text
    assert "ai-edge-litert 2.0 or newer reads them, tflite-runtime does not" in text
    assert "ai-edge-litert>=2.0" in requirements("tflite")


@pytest.mark.parametrize("precision", ["int8", "int16x8"])
def test_it_is_offered_for_what_it_reads(precision: str) -> None:
    assert OLDER in readme(manifest("tflite", {}, variant=f"student-{precision}-tflite"), "x.edge.zip", [])


def test_no_onnxruntime_is_asked_for_that_cannot_read_what_torch_exports() -> None:
    """Its format 10 needs 1.18; 1.17.3 says "Unsupported model IR version: 10"."""
    assert "onnxruntime>=1.18" in requirements("onnx")


@pytest.mark.parametrize("target", INTERPRETERS)
def test_the_extra_of_a_target_brings_what_its_bundles_ask_for(target: str) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert project["optional-dependencies"][target] == INTERPRETERS[target]
