"""Code that is right on contiguous tensors alone is trained, evaluated and kept so; all other networks run faster."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.data import Data, Split
from edgekit.models import memory_layout, store
from edgekit.models.eager import eager_input
from edgekit.models.from_artifact import spec_for
from edgekit.training import predict
from edgekit.training.fit import fit
from edgekit.training.objective import Distillation

NETWORKS = "tests.stages.prune.networks"
CONTIGUOUS_ALONE = ("lenet", "strided", "volume")


def data(channels: int) -> Data:
    random = np.random.default_rng(0)

    def split(count: int) -> Split:
        x = random.integers(0, 256, (count, 32, 32, channels), dtype=np.uint8)
        return Split(x, np.arange(count) % 3)

    return Data(split(24), split(8), split(4), ("a", "b", "c"), "image", digest="synthetic")


STEPS = [{"step": "scale", "factor": 1 / 255}]
ONE_EPOCH = TrainOptions(epochs=1, batch_size=8, learning_rate=0.01, augment="none")


def network(name: str, samples: Data) -> tuple[torch.nn.Module, store.ModelSpec]:
    spec = spec_for(samples, name if ":" in name else f"{NETWORKS}:{name}", {}, STEPS)
    return store.build(spec), spec


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", [*CONTIGUOUS_ALONE, "trained_by_view"])
def test_it_is_trained_evaluated_and_loaded_again(name: str, channels: int, tmp_path: Path) -> None:
    given = data(channels)
    module, spec = network(name, given)
    fit(module, given, STEPS, ONE_EPOCH, seed=0, threads=1)
    assert memory_layout.layout_of(module) is torch.contiguous_format
    store.save(tmp_path, module, spec)
    loaded, _ = store.load(tmp_path)
    with torch.no_grad():
        expected = loaded(eager_input(given.validation.x, STEPS).clone(memory_format=torch.contiguous_format)).numpy()
    for each in (module, loaded, copy.deepcopy(module)):
        assert np.allclose(predict.logits(each, given.validation.x, STEPS), expected, atol=1e-5)


@pytest.mark.parametrize("teacher", ["lenet", "edgekit.models.ds_cnn:ds_cnn"])
@pytest.mark.parametrize("student", ["lenet", "edgekit.models.ds_cnn:ds_cnn"])
def test_teacher_and_student_have_each_their_own_layout(student: str, teacher: str) -> None:
    given = data(3)
    taught = Distillation(network(teacher, given)[0])
    module, _ = network(student, given)
    fit(module, given, STEPS, ONE_EPOCH, seed=0, threads=1, distillation=taught)
    expected = torch.contiguous_format if student == "lenet" else torch.channels_last
    assert memory_layout.layout_of(module) is expected


def test_so_is_one_whose_batches_are_divided() -> None:
    given = data(3)
    found = []
    for shares in (2, 2):
        module, _ = network("lenet", given)
        training = TrainingOptions(shares=shares)
        fit(module, given, STEPS, ONE_EPOCH, seed=0, threads=1, training=training)
        found.append(module.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_what_a_network_keeps_of_its_first_call_can_be_trained_with() -> None:
    given = data(3)
    module, _ = network("caching", given)
    predict.logits(module, given.validation.x, STEPS)
    fit(module, given, STEPS, ONE_EPOCH, seed=0, threads=1)


def test_lazy_layers_are_trained_and_their_first_weights_are_those_of_the_seed(tmp_path: Path) -> None:
    given = data(3)
    module, spec = network("lazy", given)
    torch.manual_seed(5)
    again = store.build(spec)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in module.state_dict().items())
    assert not torch.equal(store.build(spec, seed=1).state_dict()["0.weight"], module.state_dict()["0.weight"])
    fit(module, given, STEPS, ONE_EPOCH, seed=0, threads=1)
    store.save(tmp_path, module, spec)
    loaded, _ = store.load(tmp_path)
    assert torch.equal(loaded.state_dict()["4.weight"], module.state_dict()["4.weight"])
