"""The table of docs/reference/model-files.md, row by row: what a file is made into, and what is refused."""

from __future__ import annotations

import importlib
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from docs.generate import model_files
from edgekit.core.config import TARGETS
from edgekit.core.errors import ConversionError
from edgekit.models import files as sources
from edgekit.models import store
from edgekit.models.files import TITLES
from edgekit.stages.convert.numerics import compare
from edgekit.targets import evaluate, launch, model_file, precisions
from edgekit.targets.jobs import ConversionJob, ConversionStep, plain_method
from tests.conftest import ROOT
from tests.models.files import files

LEAST_DB = {"fp32": 60, "fp16": 40, "int8": 15, "w8": 20, "dynamic": 20, "int4": 15, "int4_dense": 15, "int16x8": 35}
CELLS = [  # those that convert in every precision have `make zoo`, like the architectures; here is what is refused
    pytest.param(
        row.kind,
        target,
        cell := row.cells[f"convert: {target}"],
        id=f"{row.kind}-{target}",
        marks=[pytest.mark.zoo] if cell == model_files.YES else [],
    )
    for row in model_files.rows()
    if row.kind
    for target in TARGETS
]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A saved network of each kind."""
    home = tmp_path_factory.mktemp("given")
    return {kind: files.saved(kind, home / kind) for kind in TITLES}


@pytest.mark.parametrize(("kind", "target", "cell"), CELLS)
def test_a_cell_of_the_table(kind: str, target: str, cell: str, models: dict[str, Path], tmp_path: Path) -> None:
    convert = importlib.import_module(f"edgekit.targets.{target}.convert").convert
    offered = model_file.offered_precisions(target, precisions(target), models[kind])
    if cell != model_files.YES:
        assert offered == ()
        with pytest.raises(ConversionError, match=re.escape(cell.removeprefix("no: "))):
            convert(models[kind], "fp32", None, tmp_path)
        return
    assert offered == precisions(target)
    x = files.samples()
    expected = evaluate.torch_outputs(models[kind], x)
    assert np.ptp(expected, axis=0).max() > 0.01, "the same answer to everything"
    for precision in offered:
        made = convert(models[kind], precision, x, tmp_path / precision)
        found = evaluate.file_outputs(kind, target, tmp_path / precision, made, x)
        assert compare(expected, found).snr_db > LEAST_DB[precision], precision
    assert made.input.shape[0] == 1


def test_keras_in_int8_is_int8_at_both_ends(models: dict[str, Path], tmp_path: Path) -> None:
    from edgekit.targets.tflite import convert as tflite

    made = tflite.convert(models["keras"], "int8", files.samples(), tmp_path)
    assert (made.input.dtype, made.outputs[0].dtype, made.float_ops) == ("int8", "int8", ())


@pytest.mark.numerics
def test_kerass_weights_outlive_their_model(models: dict[str, Path], tmp_path: Path) -> None:
    """OpenVINO may take them over where they lie; one process that makes all precisions gives that memory to others."""
    x = files.samples()
    np.save(tmp_path / "calibration.npy", x)
    steps = tuple(
        ConversionStep(each, plain_method(each), models["keras"], tmp_path / each) for each in precisions("openvino")
    )
    job = ConversionJob("baseline", "openvino", tmp_path / "calibration.npy", steps)
    expected = evaluate.torch_outputs(models["keras"], x)
    for outcome in launch.convert(job, tmp_path, 300, threading.Event()):
        assert isinstance(outcome, launch.ConvertedStep)
        found = evaluate.file_outputs("", "openvino", tmp_path / outcome.precision, outcome.files, x)
        assert compare(expected, found).snr_db > LEAST_DB[outcome.precision], outcome.precision


def test_a_quantized_file_is_taken_as_it_is(tmp_path: Path, models: dict[str, Path]) -> None:
    from edgekit.targets.openvino import convert as openvino
    from edgekit.targets.tflite import convert as tflite

    tflite.convert(models["tflite"], "int8", files.samples(), tmp_path / "int8")
    source = store.Source(kind="tflite", file="model.tflite", integers=True)
    store.save_source(tmp_path / "model", tmp_path / "int8/model.tflite", files.spec(source))
    assert model_file.offered_precisions("tflite", tflite.PRECISIONS, tmp_path / "model") == ("int8",)
    made = tflite.convert(tmp_path / "model", "int8", files.samples(), tmp_path / "again")
    before = evaluate.torch_outputs(tmp_path / "model", files.samples())
    assert np.array_equal(evaluate.file_outputs("", "tflite", tmp_path / "again", made, files.samples()), before)
    with pytest.raises(ConversionError, match="quantized already: give the float model"):
        openvino.convert(tmp_path / "model", "int8", files.samples(), tmp_path / "other")


def test_the_reference_has_the_table() -> None:
    assert model_files.support() in (ROOT / "docs" / "reference" / "model-files.md").read_text()


def test_what_is_quantized_already_is_seen_whatever_it_takes_and_gives(models: dict[str, Path], tmp_path: Path) -> None:
    """A file may be int8 inside and float at both ends."""
    for name in TARGETS:
        target = importlib.import_module(f"edgekit.targets.{name}.convert")
        module, suffix = sources.module(name), files.NAMES[name].rpartition(".")[2]
        assert not module.is_quantized(next(models[name].glob(f"*.{suffix}")))
        for precision in ("int8", "dynamic") if name != "openvino" else ("int8", "w8"):
            target.convert(models[name], precision, files.samples(), tmp_path / name / precision)
            assert module.is_quantized(tmp_path / name / precision / f"model.{suffix}"), (name, precision)


@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_what_is_quantized_already_is_not_quantized_again(name: str, models: dict[str, Path], tmp_path: Path) -> None:
    target = importlib.import_module(f"edgekit.targets.{name}.convert")
    made = target.convert(models[name], "int8", files.samples(), tmp_path / "int8")
    source = store.Source(kind=name, file=made.names[0], integers=True)
    store.save_source(tmp_path / "model", tmp_path / "int8" / made.names[0], files.spec(source))
    assert model_file.offered_precisions(name, target.PRECISIONS, tmp_path / "model") == ("int8",)
    again = target.convert(tmp_path / "model", "int8", files.samples(), tmp_path / "again")
    before, after = (
        evaluate.file_outputs("", name, tmp_path / folder, of, files.samples())
        for folder, of in (("int8", made), ("again", again))
    )
    assert np.allclose(before, after, atol=1e-5)
