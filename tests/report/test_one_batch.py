"""The functions that the visible cells of the notebooks call on one batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import validate
from edgekit.data import Data, load, parse
from edgekit.models import store
from edgekit.models.eager import eager_input
from edgekit.models.from_artifact import open_model, spec_for
from edgekit.report import one_batch
from edgekit.stages.distill import DistillConfig
from edgekit.stages.prune import PruneConfig, structured
from edgekit.stages.quantize.studies import snr_db
from edgekit.training.losses import label_loss
from edgekit.training.losses.soft_targets import combined_loss

STEPS = [{"step": "scale", "factor": 1 / 255}]
STUDENT = {"builder": "edgekit.models.ds_cnn:ds_cnn", "kwargs": {"width": 16, "blocks": 2}}


@pytest.fixture(scope="module")
def data() -> Data:
    return load(parse({"source": "digits", "size": 16, "limit": 300, "calibration_samples": 30})).withhold_test()


@pytest.fixture(scope="module")
def profile(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Artifact]:
    out = artifacts.begin(tmp_path_factory.mktemp("run") / "profile")
    spec = spec_for(data, "edgekit.models.ds_cnn:ds_cnn", {"width": 32, "blocks": 2}, STEPS)
    store.save(out / "model", store.build(spec, seed=1), spec)
    yield artifacts.seal(out, stage="profile", source=None, data_digest=data.digest, config={}, metrics={})


@pytest.mark.parametrize("options", [{"student": STUDENT}, {"candidates": [STUDENT]}])
def test_the_two_terms_of_a_batch_make_its_loss(options: dict[str, Any], profile: Artifact, data: Data) -> None:
    config = validate(DistillConfig, options, "distill")
    student, teacher, expected = one_batch.student_and_teacher(profile, data, config)
    assert student.shape == teacher.shape == (one_batch.BATCH, 10) and expected.tolist() == data.train.y[:32].tolist()
    baseline, _ = open_model(profile)
    with torch.no_grad():
        assert torch.equal(teacher, baseline(eager_input(data.train.x[:32], STEPS)))
    assert not torch.equal(student, teacher)
    soft, labels = (combined_loss(student, teacher, expected, 4.0, alpha) for alpha in (1.0, 0.0))
    assert float(labels) == pytest.approx(float(label_loss("classification")(student, expected)))
    assert float(combined_loss(student, teacher, expected, 4.0, 0.9)) == pytest.approx(float(0.9 * soft + 0.1 * labels))


def test_a_higher_temperature_softens(data: Data) -> None:
    outputs = torch.tensor([[0.0, 4.0, 1.0] + [0.0] * 7])
    table = one_batch.softened(outputs, data, (1.0, 4.0))
    assert table.columns[1:] == ("at T = 1", "at T = 4")
    assert [row[0] for row in table.rows[:2]] == [data.classes[1], data.classes[2]]
    first = [float(cell.split()[0]) for cell in table.rows[0][1:]]
    assert first[0] > 80 > 25 > first[1] > 10


def test_the_table_of_shapes_is_what_pruning_left(profile: Artifact, data: Data) -> None:
    network, spec = open_model(profile)
    before = one_batch.weight_shapes(network)
    config = validate(PruneConfig, {"ratio": 0.5, "steps": 1}, "prune")
    next(structured.steps(network, spec, config, data.train))
    table = one_batch.pruned_shapes(before, one_batch.weight_shapes(network))
    assert table.rows[0][1:3] == ("32 × 1 × 3 × 3", "16 × 1 × 3 × 3")
    assert table.rows[0][3:] == ("288", "144", "50%")
    total = sum(weight.numel() for weight in network.parameters() if weight.ndim > 1)
    assert table.rows[-1][4] == f"{total:,}"


def test_nothing_pruned_is_a_row_of_totals() -> None:
    table = one_batch.pruned_shapes({"a": (4, 2)}, {"a": (4, 2)})
    assert table.rows == [("all 1 layers", "", "", "8", "8", "0%")]


def test_a_weight_is_rounded_as_its_own_quantizer_rounds_it(profile: Artifact, data: Data, tmp_path: Path) -> None:
    from edgekit.models import quantized
    from edgekit.stages.quantize import ptq

    network, spec = open_model(profile)
    out = artifacts.begin(tmp_path / "quantize")
    built = ptq.quantize(network, ptq.calibration_inputs(data.calibration.x, STEPS, 8))
    store.save(out / "model", network, spec)
    quantized.save(out / "nncf", built)
    name = [name for name in one_batch.weight_shapes(network)][-1]
    artifacts.write_json(out / "sensitivity.json", {"layers": [{"layer": "in float"}, {"layer": name}]})
    sealed = artifacts.seal(out, stage="quantize", source=None, data_digest="d", config={}, metrics={})

    weight = one_batch.quantized_weight(sealed)
    assert weight.layer == name and weight.float32.shape == one_batch.weight_shapes(network)[name]
    assert np.array_equal(weight.float32, network.get_parameter(f"{name}.weight").detach().numpy())
    scale = weight.scale.reshape(-1, 1)
    integers = np.clip(np.round(weight.float32 / scale) + weight.zero_point.reshape(-1, 1), weight.low, weight.high)
    again = (integers - weight.zero_point.reshape(-1, 1)) * scale
    assert np.abs(again - weight.int8).max() < 1e-6
    assert 30 < snr_db(weight.float32, again) < 60
    assert len(weight.scale) == len(weight.float32)


def variants(*names: str) -> Any:
    result = []
    for name in names:
        model, precision, target = name.split("-")
        result.append(SimpleNamespace(name=name, model=model, precision=precision, target=target))
    return result


def test_the_files_of_one_network_on_one_target() -> None:
    files = variants("b-fp32-tflite", "b-int8-tflite", "b-w8-tflite", "b-fp32-onnx", "p-fp32-tflite")
    some = one_batch.by_precision(files)
    assert [file.name for file in some] == ["b-fp32-tflite", "b-int8-tflite", "b-w8-tflite"]
    assert [file.precision for file in one_batch.float_and_int8(some)] == ["fp32", "int8"]
    assert [file.precision for file in one_batch.float_and_int8([some[0], some[2]])] == ["fp32", "w8"]
    assert [file.precision for file in one_batch.float_and_int8(some[:1])] == ["fp32"]
