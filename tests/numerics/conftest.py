"""The sound pipeline that the seeded faults break: trained for a few seconds, converted once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))  # the children, too, build the networks of nets by name

import made


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def clean(tmp_path_factory: pytest.TempPathFactory) -> made.Clean:
    folder = tmp_path_factory.mktemp("numerics")
    given = made.data()
    torch.set_num_threads(1)
    module, spec = made.trained(given, "nets:varied")
    files = {}
    for target in ("onnx", "openvino", "tflite"):
        for precision, one in made.converted(folder, given, module, spec, target, ("fp32", "int8")).items():
            files[target, precision] = one
    return made.Clean(given, module, spec, folder / "model", files, tmp_path_factory.mktemp("scratch"))
