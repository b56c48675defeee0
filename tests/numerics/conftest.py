"""The pipeline without faults, which the seeded faults break: trained for a few seconds, converted once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the children, too, build the networks of nets by name

import clean_pipeline


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> clean_pipeline.Clean:
    folder = tmp_path_factory.mktemp("numerics")
    given = clean_pipeline.data()
    torch.set_num_threads(1)
    module, spec = clean_pipeline.trained(given, "nets:varied")
    files = {}
    for target in ("onnx", "openvino", "tflite"):
        for precision, one in clean_pipeline.converted(folder, given, module, spec, target, ("fp32", "int8")).items():
            files[target, precision] = one
    return clean_pipeline.Clean(given, module, spec, folder / "model", files, tmp_path_factory.mktemp("scratch"))
