"""Unstructured pruning: the schedule, the zeros, and that training does not grow them back."""

from __future__ import annotations

import pytest
import torch

from edgekit.models import store
from edgekit.stages.prune import PruneConfig, unstructured
from tests.stages.prune.test_structured import NO_SAMPLES, spec


def config(**options: object) -> PruneConfig:
    return PruneConfig.model_validate({"sparsity": 0.8, "sparsity_steps": 4, **options})


def test_the_schedule_is_cubic_and_ends_at_the_aim() -> None:
    aims = [unstructured.sparsity_at(step, 4, 0.8) for step in range(5)]
    assert aims[0] == 0
    assert aims[-1] == pytest.approx(0.8)
    gains = [later - earlier for earlier, later in zip(aims, aims[1:], strict=False)]
    assert gains == sorted(gains, reverse=True)
    assert aims[2] == pytest.approx(0.8 * (1 - 0.5**3))


def test_every_step_reaches_its_sparsity_in_the_same_shapes() -> None:
    described = spec("resnet:resnet8")
    module = store.build(described)
    shapes = {name: value.shape for name, value in module.state_dict().items()}
    for aimed, _ in unstructured.steps(module, described, config(), NO_SAMPLES):
        assert unstructured.measured_sparsity(module) == pytest.approx(aimed, abs=1e-3)
    assert {name: value.shape for name, value in module.state_dict().items()} == shapes


def test_the_largest_weights_stay() -> None:
    described = spec("ds_cnn:ds_cnn", width=16)
    module = store.build(described)
    before = torch.cat([weight.detach().abs().flatten() for weight in unstructured.prunable_weights(module).values()])
    for _ in unstructured.steps(module, described, config(sparsity_steps=1), NO_SAMPLES):
        pass
    after = torch.cat([weight.detach().abs().flatten() for weight in unstructured.prunable_weights(module).values()])
    assert before[after == 0].max() <= before[after > 0].min()


def test_zeros_stay_zeros_through_training() -> None:
    described = spec("ds_cnn:ds_cnn", width=16)
    module = store.build(described)
    for _, keep_up in unstructured.steps(module, described, config(sparsity_steps=1), NO_SAMPLES):
        module.train()
        optimiser = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            module(torch.rand(8, 3, 32, 32)).square().sum().backward()
            optimiser.step()
            keep_up(module)
    assert unstructured.measured_sparsity(module) == pytest.approx(0.8, abs=1e-3)


def test_where_pointwise_layers_are_meant_no_other_gets_zeros() -> None:
    described = spec("ds_cnn:ds_cnn", width=16)
    module = store.build(described)
    for aimed, _ in unstructured.steps(module, described, config(sparsity_layers="pointwise"), NO_SAMPLES):
        pointwise = unstructured.weights_to_zero(module, "pointwise")
        zeros = sum(int((weight == 0).sum()) for weight in pointwise.values())
        assert zeros / sum(weight.numel() for weight in pointwise.values()) == pytest.approx(aimed, abs=1e-2)
    others = {name: weight for name, weight in unstructured.prunable_weights(module).items() if name not in pointwise}
    assert others and all((weight != 0).all() for weight in others.values())


def test_a_network_without_pointwise_layers_is_reported() -> None:
    described = spec("conv1d:conv1d")
    module, pointwise = store.build(described), config(sparsity_layers="pointwise")
    assert "sparsity_layers: got pointwise" in unstructured.unsupported_reason(module, described, pointwise)
    assert list(unstructured.steps(module, described, pointwise, NO_SAMPLES)) == []
