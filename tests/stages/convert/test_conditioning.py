"""A network's own conditioning where the network is a file, which cannot be computed in float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from convert_nets import amplifying, tiny
from convert_runs import SHAPE, spec_of
from torch import nn

from edgekit.models import store
from edgekit.models.spec import Source
from edgekit.stages.convert import ConvertConfig, checker, numerics
from edgekit.stages.convert.plan import NetworkToConvert
from edgekit.targets import evaluate, launch
from edgekit.targets.jobs import ConversionJob
from edgekit.targets.openvino.convert import convert

pytestmark = pytest.mark.numerics

INPUTS = np.random.default_rng(0).normal(size=(20, *SHAPE)).astype(np.float32)
Saved = Callable[..., Path]


class Shifted(nn.Module):
    """The network, each answer changed by one percent."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x) + 0.1


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    """Saves the network of a builder as an ONNX file that came from elsewhere; `change` wraps it."""

    def save(build: Any, change: Callable[[nn.Module], nn.Module] = lambda module: module) -> Path:
        torch.manual_seed(0)
        path = tmp_path / f"{build.__name__}.onnx"
        torch.onnx.export(change(build(SHAPE, 4)).eval(), (torch.zeros(1, *SHAPE),), path, dynamo=False)
        source = Source(kind="onnx", file=path.name)
        folder = tmp_path / f"{build.__name__}-{change.__name__}"
        store.save_source(folder, path, spec_of("tiny").model_copy(update={"builder": None, "source": source}))
        return folder

    return save


def test_a_file_of_another_framework_is_measured_by_its_inputs(saved: Saved) -> None:
    found = {}
    for build in (tiny, amplifying):
        folder = saved(build)
        reference = evaluate.torch_outputs(folder, INPUTS)
        measured = numerics.measure_conditioning(folder, INPUTS, reference, "classification")
        assert measured is not None and measured.method == numerics.MOVED_INPUTS
        found[build.__name__] = measured.snr_db
    assert found["tiny"] > 100 and 20 < found["amplifying"] < 60, found


@pytest.mark.parametrize("is_wrong", [False, True])
def test_a_file_that_amplifies_rounding_ships_and_a_wrong_one_made_of_it_does_not(
    is_wrong: bool, saved: Saved, tmp_path: Path
) -> None:
    folder = saved(amplifying)
    network = NetworkToConvert("baseline", folder)
    step = network.step("fp32", tmp_path / "baseline-fp32-openvino")
    files = convert(saved(amplifying, Shifted) if is_wrong else folder, "fp32", None, step.out)
    made = launch.ConvertedStep("fp32", files, 1.0)
    job = ConversionJob("baseline", "openvino", tmp_path / "none.npy", (step,))
    [row] = checker.BoundaryChecker(network, INPUTS, ConvertConfig(targets=["openvino"])).records(job, [made])
    if is_wrong:
        assert "drop this target" in row["advice"] and numerics.MOVED_INPUTS in row["cause"]
    else:
        last = row["boundaries"][-1]
        assert last["snr_db"] < 60 and numerics.MOVED_INPUTS in last["conditioning"]
