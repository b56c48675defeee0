"""A TFLite file is the same model after what no interpreter asks for is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.models import store
from edgekit.models.files import flatbuffer
from edgekit.targets import evaluate
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.tflite import convert, rewrites


@pytest.fixture(scope="module", params=["fp32", "fp16", "int8", "w8", "dynamic"])
def both(
    request: Any, tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[ConvertedFiles, bytes, bytes]:
    """A model as the converters leave it, and shortened."""
    inputs = np.random.default_rng(0).normal(size=(8, 3, 8, 8)).astype(np.float32)
    out = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrites, "strip_names", lambda content: content)
        files = convert.convert(tiny_folder, request.param, inputs, out)
    content = (out / convert.FILE).read_bytes()
    return files, content, rewrites.strip_names(content)


def test_outputs_are_the_same_to_the_bit(both: tuple[ConvertedFiles, bytes, bytes], tmp_path: Path) -> None:
    files, *contents = both
    inputs = np.random.default_rng(1).normal(size=(20, 3, 8, 8)).astype(np.float32)
    outputs = []
    for content in contents:
        (tmp_path / convert.FILE).write_bytes(content)
        outputs.append(evaluate.file_outputs("test", "tflite", tmp_path, files, inputs))
    assert np.array_equal(*outputs) and len(np.unique(outputs[0])) > 20


def test_bytes_go_and_no_more_go_the_second_time(both: tuple[ConvertedFiles, bytes, bytes]) -> None:
    _, content, short = both
    assert len(short) < len(content) - 1000
    assert rewrites.strip_names(content) == rewrites.strip_names(short) == short
    assert b"torch" in content and b"torch" not in short


def test_the_ends_keep_their_names(both: tuple[ConvertedFiles, bytes, bytes]) -> None:
    from ai_edge_litert.interpreter import Interpreter

    files, _, short = both
    interpreter = Interpreter(model_content=short)
    [source], [result] = interpreter.get_input_details(), interpreter.get_output_details()
    assert (source["name"], result["name"]) == (files.input.name, files.outputs[0].name)


def test_buffers_stand_where_the_format_wants_them(both: tuple[ConvertedFiles, bytes, bytes]) -> None:
    from ai_edge_litert import schema_py_generated as schema

    short = np.frombuffer(both[2], dtype=np.uint8)
    model = schema.Model.GetRootAs(short, 0)
    data = [model.Buffers(place).DataAsNumpy() for place in range(model.BuffersLength())]
    filled = [array for array in data if not isinstance(array, int)]
    places = [array.__array_interface__["data"][0] - short.__array_interface__["data"][0] for array in filled]
    assert filled and all(place % flatbuffer.BUFFER_ALIGNMENT_BYTES == 0 for place in places)


def test_buffers_that_lie_behind_the_table_come_along(tmp_path: Path) -> None:
    """So the quantizer writes networks of some size."""
    from ai_edge_litert import schema_py_generated as schema

    spec = store.ModelSpec(
        builder="edgekit.models.resnet:resnet",
        input_shape=(1, 32, 32),
        num_classes=10,
        classes=tuple("0123456789"),
        raw={"kind": "image", "shape": [32, 32, 1], "dtype": "uint8"},
    )
    store.save(tmp_path / "model", store.build(spec, seed=1), spec)
    inputs = np.random.default_rng(0).normal(size=(4, 1, 32, 32)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewrites, "strip_names", lambda content: content)
        files = convert.convert(tmp_path / "model", "fp16", None, tmp_path / "long")
    content = (tmp_path / "long" / convert.FILE).read_bytes()
    table = schema.ModelT.InitFromPackedBuf(content, 0)
    assert any(buffer.offset for buffer in table.buffers), "no such file any more: this test has lost its point"
    (tmp_path / "short").mkdir()
    (tmp_path / "short" / convert.FILE).write_bytes(rewrites.strip_names(content))
    long, short = (
        evaluate.file_outputs("test", "tflite", tmp_path / name, files, inputs) for name in ("long", "short")
    )
    assert np.array_equal(long, short)
