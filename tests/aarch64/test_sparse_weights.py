"""Files that store zeros, on Arm: they open and answer as dense ones do, and in float the sparse kernels run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.models import store
from edgekit.stages.prune import unstructured
from edgekit.targets.tflite import convert

from . import opened
from .device import Device
from .fetch import ROOT

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]
SPARSE_KERNEL = "SPMM"
SIZE, ZEROS = 32, 0.85


@pytest.fixture(scope="module", params=["litert", "tflite_runtime"])
def interpreter(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """By precision the dense and the sparse file of one MobileNetV1 whose 1x1 convolutions are mostly zeros."""
    home = tmp_path_factory.mktemp("zeros")
    spec = store.ModelSpec(
        builder="edgekit.models.mobilenet_v1:mobilenet_v1",
        kwargs={"alpha": 0.25, "stem_stride": 2},
        input_shape=(3, SIZE, SIZE),
        num_classes=10,
        classes=tuple(map(str, range(10))),
        raw={"kind": "image", "shape": [SIZE, SIZE, 3], "dtype": "uint8"},
    )
    module, random = store.build(spec, seed=0), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in unstructured.prunable_weights(module).values():
            if weight.ndim == 4 and weight.shape[-1] == 1:
                weight.mul_(torch.rand(weight.shape, generator=random) >= ZEROS)
    store.save(home / "network", module, spec)
    x = np.random.default_rng(2).random((8, 3, SIZE, SIZE), np.float32)
    for precision in ("fp32", "int8"):
        for sparse in (False, True):
            convert.convert(home / "network", precision, x, home / f"{precision}-{sparse}", sparse=sparse)
    return {
        precision: [home / f"{precision}-{sparse}" / convert.FILE for sparse in (False, True)]
        for precision in ("fp32", "int8")
    }


def floats(answers: str) -> np.ndarray:
    """Of the hex that `opened` prints."""
    return np.frombuffer(bytes.fromhex(answers.replace(" ", "")), np.float32)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_zeros_keep_the_answers_and_in_float_they_are_left_out(
    device: Device, files: dict[str, list[Path]], precision: str
) -> None:
    dense, sparse = files[precision]
    assert sparse.stat().st_size < dense.stat().st_size
    done = device.run(opened.__file__, ROOT, dense, sparse)
    assert done.returncode == 0, done.stderr[-2000:]
    before, after = json.loads(done.stdout.splitlines()[-1])
    if precision == "fp32":  # the sparse kernels add in another order
        expected, found = (floats(each["answers"]) for each in (before, after))
        assert np.allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max()) and np.ptp(expected) > 0
    else:
        assert after["answers"] == before["answers"]
    if after["operators"] is not None:
        assert not any(SPARSE_KERNEL in name for name in before["operators"])
        assert any(SPARSE_KERNEL in name for name in after["operators"]) is (precision == "fp32")
