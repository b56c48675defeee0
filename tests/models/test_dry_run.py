"""A classifier that ends in sigmoids is reported before it is trained or converted, because a softmax follows it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.models import dry_run, store


class Net(nn.Module):
    """A dense layer over 6 numbers with `end` behind it."""

    def __init__(self, end: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.dense, self.end = nn.Linear(6, 3), end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(N, 3)."""
        return self.end(self.dense(x))


def spec(task: Task = "classification") -> store.ModelSpec:
    return store.ModelSpec(
        builder="made.here:net",
        input_shape=(6,),
        num_classes=3,
        classes=("a", "b", "c"),
        task=task,
        raw={"kind": "vector", "shape": [6], "dtype": "float32"},
    )


def check(end: Callable[[torch.Tensor], torch.Tensor], task: Task = "classification", *, trains: bool = True) -> None:
    dry_run.check_network(Net(end), spec(task), torch.randn(4, 6), trains=trains)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(
    "end",
    [torch.sigmoid, functional.hardsigmoid, lambda x: torch.sigmoid(x).unsqueeze(2).flatten(1)],
    ids=["sigmoid", "hardsigmoid", "reshaped"],
)
def test_sigmoids_of_classes_are_refused(end: Callable[[torch.Tensor], torch.Tensor], trains: bool) -> None:
    with pytest.raises(ModelError, match="made.here:net.*: ends in a sigmoid, but .* apply softmax.*set model.source"):
        check(end, trains=trains)


@pytest.mark.parametrize("end", [nn.Identity(), lambda x: x * torch.sigmoid(x), lambda x: torch.sigmoid(x) - 0.5])
def test_a_sigmoid_inside_is_nobodys_business(end: Callable[[torch.Tensor], torch.Tensor]) -> None:
    check(end)


def test_values_may_end_in_a_sigmoid() -> None:
    check(torch.sigmoid, "regression")
