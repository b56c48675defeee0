"""What counts as an answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.models.mlp import mlp
from edgekit.training import predict
from edgekit.training.predict import logits


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_no_answer(bad: float) -> None:
    outputs = np.zeros((4, 2, 3), np.float32)
    assert predict.check_finite(outputs, "net", "mend it") is outputs
    outputs[2, 1, 0] = bad
    with pytest.raises(ModelError, match="net outputs NaN or infinity for sample 2 of 4; mend it"):
        predict.check_finite(outputs, "net", "mend it")


def test_answers_do_not_depend_on_where_the_samples_lie() -> None:
    """The last bits of a product do: samples of a process that maps them begin elsewhere."""
    torch.manual_seed(0)
    module = mlp((71,), 3, width=133, depth=2).eval()
    samples, found = np.random.default_rng(0).normal(size=(10, 71)).astype(np.float32), set()
    for offset in range(16):
        memory = np.empty(samples.size + 32, np.float32)
        start = -memory.ctypes.data // 4 % 16 + offset
        moved = memory[start : start + samples.size].reshape(samples.shape)
        moved[:] = samples
        found.add(logits(module, moved, []).tobytes())
    assert len(found) == 1


def test_a_network_that_writes_on_its_input_leaves_the_samples_as_they_are() -> None:
    samples = np.full((4, 3), -1, np.float32)
    logits(nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 2)), samples, [])
    assert (samples == -1).all()
