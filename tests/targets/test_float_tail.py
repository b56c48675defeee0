"""The distances of an anomaly detection stay in float in int8 files, far beyond the range of the calibration."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.models import store
from edgekit.targets import evaluate
from edgekit.targets.layers import with_followers

SHAPE, GRID = (3, 32, 32), (1, 4, 4)
KWARGS = {"backbone_kwargs": {"alpha": 0.5, "last": 32, "reduction": 32}}
BUILDERS = {"padim": {"channels": 40}, "patchcore": {"patches": 40}}
CASES = [("padim", "tflite"), ("padim", "openvino"), ("patchcore", "onnx")]
CASES_LONG = [("patchcore", "tflite"), ("patchcore", "openvino"), ("padim", "onnx")]


def pictures(count: int, seed: int) -> np.ndarray:
    """Smooth pictures in -1 to 1."""
    coarse = np.random.default_rng(seed).uniform(-1, 1, (count, 3, 4, 4)).astype(np.float32)
    return coarse.repeat(8, axis=2).repeat(8, axis=3)


@pytest.mark.parametrize(
    ("name", "target"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in CASES_LONG)]
)
def test_distances_beyond_the_calibrated_ones_are_not_clipped(name: str, target: str, tmp_path: Path) -> None:
    spec = store.ModelSpec(
        builder=f"edgekit.models.{name}:{name}",
        kwargs={**KWARGS, **BUILDERS[name]},
        input_shape=SHAPE,
        num_classes=2,
        classes=("normal", "anomaly"),
        task="anomaly",
        output_shape=GRID,
        raw={"kind": "image", "shape": [32, 32, 3], "dtype": "uint8"},
    )
    network = store.build(spec, seed=1)
    normal = 0.1 * pictures(24, 0)
    network.fit_features(torch.from_numpy(normal).split(8))  # type: ignore[operator]
    store.save(tmp_path / "network", network, spec)
    calibration = np.concatenate([normal[:16], pictures(1, 5)])
    converter = importlib.import_module(f"edgekit.targets.{target}.convert")
    new = np.concatenate([0.1 * pictures(4, 1), 0.9 * pictures(4, 2)])
    reference = evaluate.torch_outputs(tmp_path / "network", new).reshape(8, -1).max(axis=1)
    for precision, share in (("fp32", 1e-4), ("int8", 0.05)):
        files = converter.convert(tmp_path / "network", precision, calibration, tmp_path / precision)
        scores = evaluate.file_outputs(name, target, tmp_path / precision, files, new).reshape(8, -1).max(axis=1)
        np.testing.assert_allclose(scores, reference, rtol=0, atol=share * reference.max())
        if precision == "int8":
            assert any("select" in each or "CONV_2D" in each for each in files.float_ops)


def test_followers_are_all_that_use_a_result() -> None:
    operators = [("a", [0], [1]), ("b", [1], [2]), ("c", [0], [3]), ("d", [2, 3], [4]), ("e", [3], [5])]
    assert with_followers(["b"], operators) == ["b", "d"]
    assert with_followers([], operators) == []
