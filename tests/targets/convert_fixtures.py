"""Networks trained for a second on synthetic data, shared by the tests of the targets and of the convert stage."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from convert_runs import CLASSES, STEPS, colours, spec_of
from torch import nn

from edgekit.core.config import TrainOptions
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.store import ModelSpec
from edgekit.training.fit import fit


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data() -> Data:
    return Data(colours(240, 0), colours(40, 1), colours(60, 2), CLASSES, "image", digest="synthetic")


@pytest.fixture(scope="session")
def trained(data: Data) -> Callable[[str], tuple[nn.Module, ModelSpec]]:
    """A network of `convert_nets`, trained for a second, once; each caller gets a copy of its own."""
    known: dict[str, nn.Module] = {}

    def train(builder: str, **kwargs: Any) -> tuple[nn.Module, ModelSpec]:
        spec = spec_of(builder, **kwargs)
        name = json.dumps([builder, kwargs])
        if name not in known:
            module = store.build(spec, seed=1)
            options = TrainOptions(epochs=6, batch_size=16, augment="none")
            fit(module, data, STEPS, options, seed=1, device="cpu", threads=1)
            known[name] = module
        return copy.deepcopy(known[name]), spec

    return train


@pytest.fixture(scope="session")
def tiny_folder(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny") / "model"
    store.save(folder, *trained("tiny"))
    return folder


@pytest.fixture(scope="session")
def odd_folder(trained: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd") / "model"
    store.save(folder, *trained("odd"))
    return folder
