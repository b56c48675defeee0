"""`convert.fold_preprocess`: files take bytes and cross the same boundaries, and each says what became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from convert_runs import seal_run

from edgekit.core.variants import open_variant, read_variants, variant_call
from edgekit.data import Data
from edgekit.runner.backends.base import BaseBackend
from edgekit.runner.preprocess import transform
from edgekit.stages import convert
from edgekit.stages.convert import ConvertConfig, plan
from edgekit.targets import FOLD_PREPROCESS
from edgekit.targets.jobs import ConversionJob

pytestmark = pytest.mark.numerics
SCALE = [{"step": "scale", "factor": 1 / 255}]


def test_files_that_take_bytes_cross_every_boundary(
    trained: Any, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, spec = trained("tiny")
    source = seal_run(tmp_path, data, {"baseline": (module, spec.model_copy(update={"preprocess": SCALE}))})
    config = ConvertConfig(targets=["tflite"], precisions=["fp32", "int8"], check_samples=40, fold_preprocess=True)
    sealed = convert.run(source, data, config, tmp_path / "convert")
    plain, int8 = read_variants(sealed)
    assert (plain.input.dtype, int8.input.dtype) == ("uint8", "int8")
    assert plain.folding.startswith("folded: the input takes bytes")
    assert int8.folding.startswith("folded: each byte is a level")
    assert sealed.metrics["notes"][-2:] == [f"{each.name}: fold_preprocess: {each.folding}" for each in (plain, int8)]
    assert all(one["ok"] for each in (plain, int8) for one in each.boundaries)
    assert plain.boundaries[0]["snr_db"] > 100
    every = np.resize(np.arange(256, dtype=np.uint8), (4, 8, 8, 3))
    for variant, lowest in ((plain, 0), (int8, -128)):
        backend, x = open_variant(sealed, variant), every[:1] * np.float32(1 / 255)
        expected = backend.run(x)
        with monkeypatch.context() as patch:
            patch.setattr(BaseBackend, "run", lambda *_: pytest.fail("a call that is timed made its input"))
            assert np.array_equal(variant_call(sealed, variant, x)(), expected)  # what a benchmark times
        encode = backend.encode
        assert encode is not None
        assert np.array_equal(encode(every * np.float32(1 / 255)), every.astype(np.int16) + lowest)


@pytest.mark.parametrize("target", ["openvino", "onnx"])
def test_steps_by_channel_are_operators_in_front_of_other_files(
    target: Any, trained: Any, data: Data, tmp_path: Path
) -> None:
    module, spec = trained("tiny")
    steps = [*SCALE, {"step": "normalize", "mean": [0.5, 0.45, 0.4], "std": [0.25, 0.3, 0.2]}]
    source = seal_run(tmp_path, data, {"baseline": (module, spec.model_copy(update={"preprocess": steps}))})
    config = ConvertConfig(targets=[target], precisions=["fp32", "int8"], check_samples=40, fold_preprocess=True)
    sealed = convert.run(source, data, config, tmp_path / "convert")
    every = np.resize(np.arange(256, dtype=np.uint8), (1, 8, 8, 3))
    x = np.ascontiguousarray(transform.apply(steps, every).transpose(0, 3, 1, 2))
    for variant in read_variants(sealed):
        assert variant.input.dtype == "uint8" and all(one["ok"] for one in variant.boundaries)
        assert variant.folding == "folded: the input takes bytes, a scale for each of 3 channels"
        backend = open_variant(sealed, variant)
        assert np.array_equal(variant_call(sealed, variant, x)(), backend.run(x))  # what a benchmark times
        assert backend.encode is not None and np.array_equal(backend.encode(x), every.transpose(0, 3, 1, 2))


def test_only_supporting_targets_of_enabled_runs_get_the_option(trained: Any, data: Data, tmp_path: Path) -> None:
    source = seal_run(tmp_path, data, {"baseline": trained("tiny")})
    [network], _ = plan.distinct_networks(source, ["baseline"])
    for enabled in (False, True):
        jobs = network.jobs(ConvertConfig(fold_preprocess=enabled), tmp_path / "calibration.npy", tmp_path)
        assert {job.target for job in jobs} == {"tflite", "openvino", "onnx"}
        for job in jobs:
            assert all(step.fold == (enabled and job.target in FOLD_PREPROCESS) for step in job.steps)
            assert ConversionJob.from_json(json.loads(json.dumps(job.to_json()))) == job
