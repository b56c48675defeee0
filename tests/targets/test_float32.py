"""OpenVINO computes in float32 wherever edgekit opens a model, also on processors where bfloat16 is its default."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino
import pytest

import edgekit
from edgekit.models.files import openvino as model_files
from edgekit.runner.backends import openvino as backend
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.openvino import convert, graph, profile, tensors

SAMPLES = np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32)
WIDTH = 64
DEVICES = ("CPU", "AUTO", "HETERO:CPU", "MULTI:CPU")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every model that is compiled or imported during the test."""
    found: list[Any] = []

    class Core(openvino.Core):
        def compile_model(self, *given: Any, **more: Any) -> Any:
            found.append(super().compile_model(*given, **more))
            return found[-1]

        def import_model(self, *given: Any, **more: Any) -> Any:
            found.append(super().import_model(*given, **more))
            return found[-1]

    monkeypatch.setattr(openvino, "Core", Core)
    return found


@pytest.fixture(scope="module")
def converted(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ConvertedFiles]:
    home = tmp_path_factory.mktemp("float32")
    return home, convert.convert(tiny_folder, "fp32", SAMPLES, home)


def _restored(home: Path, files: ConvertedFiles) -> None:
    content = {name: (home / name).read_bytes() for name in files.names}
    blob = backend.export_compiled(content, files.inputs, 1)
    backend.import_compiled(blob, files.inputs, files.outputs, 1)


OPENERS: dict[str, Callable[[Path, ConvertedFiles], object]] = {
    "the runner": lambda home, files: backend.open(
        {name: (home / name).read_bytes() for name in files.names}, files.inputs, files.outputs, 1
    ),
    "the runner's cache of compiled models": _restored,
    "the search for redundant operators": lambda home, files: graph.read(home / files.names[0]),
    "the outputs of every layer": lambda home, files: tensors.read(home, files, SAMPLES),
    "the times of operators": lambda home, files: profile.rows(home, files, SAMPLES[:1], 1),
    "a model file of the user's": lambda home, files: model_files.open(home / files.names[0], 1).for_shape(
        (1, 3, 8, 8)
    ),
}


@pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS)
def test_float32_is_asked_for(
    opener: Callable[[Path, ConvertedFiles], object], converted: tuple[Path, ConvertedFiles], opened: list[Any]
) -> None:
    opener(*converted)
    assert opened
    assert [model.get_property("INFERENCE_PRECISION_HINT") for model in opened] == [openvino.Type.f32] * len(opened)


@pytest.mark.parametrize("device", DEVICES)
def test_a_device_that_stands_for_the_processor_computes_as_the_processor(device: str, tmp_path: Path) -> None:
    """1 + 2⁻⁸ and 1 + 2⁻⁹ are no numbers of bfloat16."""
    from openvino import opset13 as ops

    x = ops.parameter([1, WIDTH], np.float32, name="x")
    weights = ops.constant(np.full((WIDTH, WIDTH), 1 + 2**-9, np.float32))
    result = ops.result(ops.matmul(x, weights, False, False), name="y")
    result.get_output_tensor(0).set_names({"y"})
    openvino.save_model(openvino.Model([result], [x], "dense"), tmp_path / "m.xml", compress_to_fp16=False)
    files = {f"m.{end}": (tmp_path / f"m.{end}").read_bytes() for end in ("xml", "bin")}
    spec = TensorSpec("x", (1, WIDTH), "float32", "ANY"), TensorSpec("y", (1, WIDTH), "float32", "ANY")
    model = backend.open(files, spec[:1], spec[1:], 1, device)
    found = model.run(np.full((1, WIDTH), 1 + 2**-8, np.float32))
    assert np.allclose(found, WIDTH * (1 + 2**-9) * (1 + 2**-8), rtol=1e-6)


def test_nothing_else_compiles_a_model_of_openvino() -> None:
    """What does not go through `compile_model` would compute in bfloat16 where that is OpenVINO's default."""
    package = Path(edgekit.__file__).parent
    calls = {
        (path.relative_to(package).as_posix(), node.func.attr)
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("compile_model", "import_model")
    }
    home = "runner/backends/openvino.py"
    assert calls == {(home, "compile_model"), (home, "import_model")}
