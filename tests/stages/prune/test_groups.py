"""Groups of coupled channels: each can be cut to a width, and nothing else changes."""

from __future__ import annotations

import pytest
import torch

from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.stages.prune.structured import cut_group, group_widths, narrower_widths
from tests.stages.prune.test_structured import NETWORKS, NO_SAMPLES, config, spec


@pytest.mark.parametrize("builder", NETWORKS)
def test_each_group_is_cut_to_the_width_alone(builder: str) -> None:
    described = spec(builder, **NETWORKS[builder])
    module = store.build(described)
    before = group_widths(module, described)
    assert len(before) > 2
    for group in list(before)[:3]:
        narrow = store.build(described)
        cut_group(narrow, described, config(), NO_SAMPLES, group, before[group] - 3)
        assert group_widths(narrow, described) == {**before, group: before[group] - 3}
        assert cost(narrow, described.input_shape).macs < cost(module, described.input_shape).macs
        assert narrow(torch.zeros(2, *described.input_shape)).shape == (2, 10)


def test_the_classes_are_no_group() -> None:
    described = spec("ds_cnn:ds_cnn", width=16, blocks=1)
    module = store.build(described)
    assert 10 not in group_widths(module, described).values()


@pytest.mark.parametrize("importance", ["l1", "l2", "lamp"])
def test_the_strongest_channels_stay(importance: str) -> None:
    described = spec("ds_cnn:ds_cnn", width=16, blocks=1)
    module = store.build(described)
    stem, depthwise, pointwise = (layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        for weight in (stem.weight, depthwise.weight, pointwise.weight.transpose(0, 1)):
            weight[::2] = 1e-6
    strong = stem.weight.detach()[1::2].clone()
    layers = dict(module.named_modules())
    group = next(name for name in group_widths(module, described) if layers[name] in (stem, depthwise))
    cut_group(module, described, config(importance=importance), NO_SAMPLES, group, 8)
    assert torch.equal(stem.weight.detach(), strong)


@pytest.mark.parametrize(
    ("width", "at_first", "options", "expected"),
    [
        (48, 48, {"channel_multiple": 8, "widths_per_group": 3}, [40, 32, 24]),
        (48, 48, {"channel_multiple": 8, "widths_per_group": 9, "max_layer_ratio": 0.5, "ratio": 0.3}, [40, 32, 24]),
        (30, 48, {"channel_multiple": 8, "widths_per_group": 9, "max_layer_ratio": 0.7}, [24, 16]),
        (16, 16, {"channel_multiple": 16}, []),
        (10, 10, {"channel_multiple": 4, "max_layer_ratio": 0.9}, [8, 4]),
        (2, 2, {"channel_multiple": 4}, []),
    ],
)
def test_widths_are_multiples_that_leave_what_must_stay(
    width: int, at_first: int, options: dict[str, object], expected: list[int]
) -> None:
    assert narrower_widths(width, at_first, config(**options)) == expected
