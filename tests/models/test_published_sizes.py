"""Networks after a paper have its number of parameters where its configuration is built."""

from __future__ import annotations

import pytest
from torch import nn

from edgekit.models.bc_resnet import STAGES, bc_resnet
from edgekit.models.efficientnet_lite import efficientnet_lite0
from edgekit.models.layers import reduce_strides
from edgekit.models.mobilenet_v3 import mobilenet_v3_small
from edgekit.models.mobilenet_v4 import mobilenet_v4_small
from edgekit.models.repvgg import repvgg
from edgekit.models.tc_resnet import tc_resnet

IMAGENET, SPECTRUM = (3, 224, 224), (98, 40)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_networks_for_imagenet() -> None:
    assert parameters(mobilenet_v3_small(IMAGENET, 1000, alpha=1, last=1024, reduction=32)) == 2_542_856
    assert parameters(mobilenet_v4_small(IMAGENET, 1000, alpha=1, last=1280, reduction=32)) == 3_774_024
    assert parameters(efficientnet_lite0(IMAGENET, 1000, alpha=1, last=1280, reduction=32)) == 4_652_008


def test_repvgg_a0_before_and_after_its_branches_are_merged() -> None:
    network = repvgg(IMAGENET, 1000, alpha=0.75, top=2.5, blocks=[2, 4, 14, 1], reduction=32)
    assert parameters(network) == 9_108_968
    assert parameters(network.reparameterized()) == 8_309_384  # type: ignore[operator]


@pytest.mark.parametrize(("alpha", "blocks", "published"), [(1, 1, 66_000), (1.5, 1, 145_000), (1.5, 2, 305_000)])
def test_tc_resnet(alpha: float, blocks: int, published: int) -> None:
    """The paper gives thousands."""
    assert parameters(tc_resnet(SPECTRUM, 12, alpha=alpha, blocks=blocks)) == pytest.approx(published, rel=0.02)


@pytest.mark.parametrize(("alpha", "published"), [(1, 9_200), (8, 321_000)])
def test_bc_resnet_but_for_its_sub_spectral_norms(alpha: int, published: int) -> None:
    """Those have a scale and a shift for each of five bands, ours for all together."""
    filters = sum(round(width * alpha) * blocks for width, blocks, *_ in STAGES)
    assert parameters(bc_resnet((1, *SPECTRUM), 12, alpha)) + 4 * 2 * filters == pytest.approx(published, rel=0.005)


@pytest.mark.parametrize(
    ("reduction", "strides"), [(32, [2, 1, 2, 2, 2, 2]), (8, [1, 1, 1, 2, 2, 2]), (1, [1, 1, 1, 1, 1, 1])]
)
def test_small_pictures_lose_the_first_strides(reduction: int, strides: list[int]) -> None:
    assert reduce_strides([2, 1, 2, 2, 2, 2], reduction) == strides


@pytest.mark.parametrize("reduction", [0, -2, 3, 64])
def test_a_reduction_that_the_strides_cannot_make_is_refused(reduction: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to 32, got {reduction}"):
        reduce_strides([2, 1, 2, 2, 2, 2], reduction)
