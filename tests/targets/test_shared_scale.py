"""A detector that joins boxes and logits in one output: int8 gives both one scale, and the logits lose by it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from edgekit.models import store
from edgekit.models.detector import Detector, detector
from edgekit.models.eager import join_outputs
from edgekit.models.output_check import SHARED_SCALE, shared_scale_note
from edgekit.models.spec import ModelSpec
from edgekit.targets import evaluate
from edgekit.targets.onnx.convert import convert

SHAPE = (3, 48, 64)
WIDE = 15.0
"""Boxes of so many strides to each side: three times the logits of a fresh network."""


def apart(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two outputs."""
    net = detector(input_shape, num_classes, width=8, depth=1)
    assert isinstance(net, Detector)
    for head in (net.fine_head, net.coarse_head):
        nn.init.constant_(head.boxes.bias, WIDE)  # type: ignore[arg-type]
        nn.init.normal_(head.scores.weight, std=0.2)
    return net


class OneOutput(nn.Module):
    """The same network, whose outputs are one."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return join_outputs(self.net(x))


def together(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """One output."""
    return OneOutput(apart(input_shape, num_classes))


def test_int8_of_one_output_costs_the_logits_what_two_outputs_keep(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((16, *SHAPE)).astype(np.float32)
    errors, notes = {}, {}
    for name in ("apart", "together"):
        spec = ModelSpec(
            builder=f"{__name__}:{name}",
            input_shape=SHAPE,
            num_classes=3,
            task="detection",
            classes=("a", "b", "c"),
            raw={"kind": "image", "shape": [48, 64, 3], "dtype": "uint8"},
        )
        net = store.build(spec, 0)
        notes[name] = shared_scale_note(net, spec, torch.from_numpy(x))
        store.save(tmp_path / name, net, spec)
        files = convert(tmp_path / name, "int8", x, tmp_path / f"{name}-onnx")
        outputs = evaluate.file_outputs("int8", "onnx", tmp_path / f"{name}-onnx", files, x)
        off = outputs[..., 4:] - evaluate.torch_outputs(tmp_path / name, x)[..., 4:]
        errors[name] = float(np.sqrt(np.square(off).mean()))
    assert notes == {"apart": "", "together": SHARED_SCALE}
    assert errors["together"] > 2 * errors["apart"], errors
