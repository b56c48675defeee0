"""Networks after a paper have its parameters and multiply-adds where its configuration is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

from edgekit.models.bc_resnet import STAGES, bc_resnet
from edgekit.models.cost import cost
from edgekit.models.efficientnet_lite import efficientnet_lite0, efficientnet_lite1, efficientnet_lite2
from edgekit.models.features import Features
from edgekit.models.layers import reduce_strides
from edgekit.models.mcunet import mcunet
from edgekit.models.mobilenet_v1 import mobilenet_v1
from edgekit.models.mobilenet_v2 import mobilenet_v2
from edgekit.models.mobilenet_v3 import mobilenet_v3_large, mobilenet_v3_small
from edgekit.models.mobilenet_v4 import mobilenet_v4_small
from edgekit.models.repvgg import repvgg
from edgekit.models.resnet import resnet, resnet8, resnet18
from edgekit.models.tc_resnet import tc_resnet

IMAGENET, SPECTRUM = (3, 224, 224), (98, 40)


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def repvgg_a0(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    network = repvgg(input_shape, num_classes, alpha=0.75, top=2.5, blocks=[2, 4, 14, 1])
    assert parameters(network) == 9_108_968  # of the authors' weights for training
    return network.reparameterized()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("builder", "options", "count", "published", "tolerance"),
    [
        # the paper's table 4: 4.2 M and 569 M
        (mobilenet_v1, {"alpha": 1}, 4_231_976, 569e6, 0.5e6),
        # torchvision's weights: 3,504,872 and 0.301 G; the paper's table 4: 3.4 M and 300 M
        (mobilenet_v2, {"alpha": 1, "last": 1280}, 3_504_872, 301e6, 0.5e6),
        # torchvision's weights: 2,542,856 and 0.057 G; the paper's table 3: 2.5 M and 56 M
        (mobilenet_v3_small, {"alpha": 1, "last": 1024}, 2_542_856, 57e6, 0.5e6),
        # torchvision's weights: 5,483,032 and 0.217 G; the paper's table 3: 5.4 M and 219 M
        (mobilenet_v3_large, {}, 5_483_032, 217e6, 0.5e6),
        # timm's weights: 3,774,024; the paper's table 5: 3.8 M and 0.2 G (it is 186 M)
        (mobilenet_v4_small, {"alpha": 1, "last": 1280}, 3_774_024, 0.2e9, 0.05e9),
        # torchvision's weights: 11,689,512 and 1.814 G
        (resnet18, {}, 11_689_512, 1_814e6, 0.5e6),
        # the authors' merged weights: 8,309,384; the paper's table 2: 8.30 M and 1.4 B
        (repvgg_a0, {}, 8_309_384, 1.4e9, 0.05e9),
    ],
)
def test_networks_for_imagenet(
    builder: Callable[..., nn.Module],
    options: dict[str, Any],
    count: int,
    published: float,
    tolerance: float,
) -> None:
    counted = cost(builder(IMAGENET, 1000, **options), IMAGENET)
    assert counted.parameters == count
    assert counted.macs == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize(
    ("builder", "options", "side", "count", "published"),
    [
        (efficientnet_lite0, {"alpha": 1, "last": 1280}, 224, 4_652_008, 407e6),
        (efficientnet_lite1, {}, 240, 5_416_680, 631e6),
        (efficientnet_lite2, {}, 260, 6_092_072, 899e6),
    ],
)
def test_efficientnet_lite(
    builder: Callable[..., nn.Module], options: dict[str, Any], side: int, count: int, published: float
) -> None:
    """The parameters are those of the published weights, and the multiply-adds those of the README in tensorflow/tpu.

    The README's are 5 % more than those of convolutions and dense layers. Three for each value of a norm explain them.
    """
    network = builder((3, side, side), 1000, **options)
    norms: list[int] = []
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(lambda _, __, output: norms.append(output.numel()))
    counted = cost(network, (3, side, side))
    assert counted.parameters == count
    assert counted.macs + 3 * sum(norms) == pytest.approx(published, rel=0.004)


@pytest.mark.parametrize(
    ("builder", "millions"),
    [
        (mobilenet_v1, 12.0),
        (mobilenet_v2, 14.5),
        (mobilenet_v3_small, 5.5),
        (mobilenet_v4_small, 9.7),
        (efficientnet_lite0, 13.0),
        (mcunet, 18.0),
        (resnet, 40.8),
        (resnet8, 12.5),
        (lambda *arguments: repvgg(*arguments).reparameterized(), 15.8),  # type: ignore[operator]
    ],
)
def test_defaults_for_small_pictures_cost_what_their_docstrings_say(
    builder: Callable[..., nn.Module], millions: float
) -> None:
    assert cost(builder((3, 32, 32), 10), (3, 32, 32)).macs / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize(
    ("size", "last"),
    [((28, 28), 4), ((63, 63), 8), ((64, 64), 4), ((127, 127), 8), ((128, 128), 4), ((160, 224), 5), ((224, 60), 8)],
)
@pytest.mark.parametrize(
    ("builder", "options"),
    [
        (mobilenet_v1, {"alpha": 0.1}),
        (mobilenet_v2, {"alpha": 0.1}),
        (mobilenet_v3_small, {"alpha": 0.1}),
        (mobilenet_v3_large, {"alpha": 0.1}),
        (mobilenet_v4_small, {"alpha": 0.1}),
        (efficientnet_lite0, {"alpha": 0.1}),
        (mcunet, {"alpha": 0.1}),
        (repvgg, {"alpha": 0.1}),
        (resnet18, {"width": 8}),
    ],
)
def test_the_shorter_side_decides_how_small_the_last_map_is(
    builder: Callable[..., nn.Module], options: dict[str, Any], size: tuple[int, int], last: int
) -> None:
    with Features(builder((3, *size), 10, **options), (3, *size)) as features:
        assert min(features()[-1].shape[2:]) == last


@pytest.mark.parametrize(("builder", "halvings"), [(mobilenet_v1, 3), (mobilenet_v2, 3), (resnet, 2), (resnet8, 2)])
def test_with_a_stem_stride_the_size_of_a_picture_decides_nothing(
    builder: Callable[..., nn.Module], halvings: int
) -> None:
    for stem_stride in (1, 2):
        with Features(builder((3, 128, 128), 10, stem_stride=stem_stride), (3, 128, 128)) as features:
            assert features()[-1].shape[2] == 128 // 2**halvings // stem_stride


@pytest.mark.parametrize("builder", [resnet, resnet8])
def test_resnets_for_cifar_halve_larger_pictures_first(builder: Callable[..., nn.Module]) -> None:
    for side, last in ((63, 16), (64, 8)):
        with Features(builder((3, side, side), 10), (3, side, side)) as features:
            assert features()[-1].shape[2] == last


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
