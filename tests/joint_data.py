"""Samples of three tensors, of which each distinguishes one class: bytes, small floats and whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgekit import data
from edgekit.models import store
from edgekit.models.from_artifact import spec_for

NAMES = ("picture", "sensors", "ids")
SHAPES = {"picture": (1, 8, 8), "sensors": (5,), "ids": (4,)}
CLASSES = ("plain", "square", "warm")


def arrays(count: int = 600) -> dict[str, Any]:
    """As a function of the user's gives them: x_train by name, y_train, classes."""
    random = np.random.default_rng(0)
    y = random.integers(0, len(CLASSES), count)
    picture = random.integers(0, 80, (count, *SHAPES["picture"])).astype(np.uint8)
    picture[y == 1, :, 2:6, 2:6] += 120
    sensors = random.normal(0, 0.01, (count, *SHAPES["sensors"])).astype(np.float32)
    sensors[y == 2] += 0.03
    ids = random.integers(0, 10, (count, *SHAPES["ids"]))
    return {"x_train": {"picture": picture, "sensors": sensors, "ids": ids}, "y_train": y, "classes": list(CLASSES)}


class Network(nn.Module):
    """Its arguments stand in another order than the data's tensors."""

    def __init__(self, num_classes: int, width: int) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.read = nn.Linear(5, width)
        with torch.no_grad():
            self.read.weight.mul_(30)  # the sensors' numbers are small
        self.words = nn.Embedding(10, 8)
        self.decide = nn.Linear(2 * width + 8, num_classes)

    def forward(self, sensors: Tensor, picture: Tensor, ids: Tensor) -> Tensor:
        seen = [self.look(picture / 255), torch.relu(self.read(sensors)), self.words(ids).mean(1)]
        scores: Tensor = self.decide(torch.cat(seen, 1))
        return scores


def network(num_classes: int, input_shapes: dict[str, tuple[int, ...]], width: int = 8) -> nn.Module:
    """A builder, as a config names it."""
    assert input_shapes == SHAPES
    return Network(num_classes, width)


def trained(dataset: data.Data) -> tuple[nn.Module, store.ModelSpec]:
    """The network, trained for some seconds: what it says depends on every tensor."""
    spec = spec_for(dataset, f"{__name__}:network", {}, [])
    module = store.build(spec).train()
    x, y = torch.from_numpy(dataset.train.x.copy()), torch.from_numpy(dataset.train.y.copy())
    optimizer = torch.optim.Adam(module.parameters(), 1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(module(x), y).backward()
        optimizer.step()
    return module.eval(), spec
