"""`convert.sparse_weights`: files of a network with zeros cross the same boundaries, and each says what it stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from convert_runs import seal_run

from edgekit.core.variants import open_variant, read_variants
from edgekit.data import Data
from edgekit.stages import convert
from edgekit.stages.convert import ConvertConfig, plan
from edgekit.targets import SPARSE_WEIGHTS
from edgekit.targets.jobs import ConversionJob


@pytest.mark.numerics
def test_a_file_that_stores_zeros_is_smaller_and_crosses_every_boundary(
    trained: Any, data: Data, tmp_path: Path
) -> None:
    module, spec = trained("tiny", width=64)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.weight[:, ::2] = 0
    source = seal_run(tmp_path, data, {"baseline": (module, spec)})
    dense_config = ConvertConfig(targets=["tflite"], precisions=["fp32"], check_samples=40)
    sparse_config = dense_config.model_copy(update={"sparse_weights": True})
    dense, sealed = (
        convert.run(source, data, config, tmp_path / name)
        for name, config in (("dense", dense_config), ("sparse", sparse_config))
    )
    [plain], [before] = read_variants(sealed), read_variants(dense)
    assert plain.sparse_weights.partition(":")[0] == "sparse" and not before.sparse_weights
    assert plain.bytes < 0.8 * before.bytes
    assert sealed.metrics["notes"][-1] == f"{plain.name}: sparse_weights: {plain.sparse_weights}"
    assert all(one["ok"] for one in plain.boundaries)
    assert open_variant(sealed, plain).run(convert_input(data)).shape[-1] == len(data.classes)


def convert_input(data: Data) -> Any:
    return (data.validation.x[:1] / 255).astype("float32")


def test_only_supporting_targets_of_enabled_runs_get_the_option(trained: Any, data: Data, tmp_path: Path) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    [network], _ = plan.distinct_networks(source, ["baseline"])
    for enabled in (False, True):
        jobs = network.jobs(ConvertConfig(sparse_weights=enabled), tmp_path / "calibration.npy", tmp_path)
        assert {job.target for job in jobs} == {"tflite", "openvino", "onnx"}
        for job in jobs:
            assert all(step.sparse == (enabled and job.target in SPARSE_WEIGHTS) for step in job.steps)
            assert ConversionJob.from_json(json.loads(json.dumps(job.to_json()))) == job
