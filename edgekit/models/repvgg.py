"""RepVGG (Ding et al. 2021, "RepVGG: Making VGG-style ConvNets Great Again").

In training, a block has three branches, 3x3, 1x1 and identity, each with batch normalisation. All are linear, so
`reparameterized()` returns the same network with one 3x3 convolution for each block, and that is what devices get.
With alpha 0.75, top 2.5, blocks 2, 4, 14, 1 and images of 224x224 it is RepVGG-A0, with 9,108,968 parameters in
training and 8,309,384 afterwards, for 1,000 classes.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

from edgekit.models.layers import check_multipliers, classifier, conv_bn, image_channels, round_channels, strides_for

WIDTHS = (64, 128, 256, 512)
"""Channels of the stages with alpha and top 1; the stem has as many as the first stage, but at most 64."""


class RepVGGBlock(nn.Module):
    """ReLU of the sum of a 3x3 convolution, a 1x1 convolution and, if the shapes agree, the input, each normalised."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.wide = conv_bn(inputs, outputs, 3, stride)
        self.pointwise = conv_bn(inputs, outputs, 1, stride)
        self.identity = nn.BatchNorm2d(outputs) if stride == 1 and inputs == outputs else None
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.wide(x) + self.pointwise(x)
        output: Tensor = self.relu(y if self.identity is None else y + self.identity(x))
        return output

    def merged(self) -> nn.Sequential:
        """Return one 3x3 convolution with a bias, and ReLU, computed from the running statistics as in eval mode."""
        conv, pointwise = self.wide[0], self.pointwise[0]
        assert isinstance(conv, nn.Conv2d) and isinstance(pointwise, nn.Conv2d)
        kernels = [
            _fold_batchnorms(conv.weight, self.wide[1]),
            _fold_batchnorms(_centred(pointwise.weight), self.pointwise[1]),
        ]
        if self.identity is not None:
            kernels.append(_fold_batchnorms(_centred(torch.eye(conv.out_channels)[:, :, None, None]), self.identity))
        one = nn.Conv2d(conv.in_channels, conv.out_channels, 3, self.stride, 1)
        with torch.no_grad():
            one.weight.copy_(torch.stack([weight for weight, _ in kernels]).sum(0))
            assert one.bias is not None
            one.bias.copy_(torch.stack([bias for _, bias in kernels]).sum(0))
        return nn.Sequential(one, nn.ReLU())


def _centred(pointwise: Tensor) -> Tensor:
    """Pad a 1x1 kernel to a 3x3 kernel with the 1x1 kernel at its centre."""
    return nn.functional.pad(pointwise, (1, 1, 1, 1))


def _fold_batchnorms(kernel: Tensor, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """Fold a norm into the convolution before it. Kernel and bias are float64, to be added up with little rounding."""
    assert isinstance(norm, nn.BatchNorm2d) and norm.running_mean is not None and norm.running_var is not None
    statistics = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    doubles = [each.detach().double() if isinstance(each, Tensor) else each for each in statistics]
    return fuse_conv_bn_weights(kernel.detach().double(), None, *doubles)  # type: ignore[arg-type]


class RepVGG(nn.Module):
    """(N, C, H, W) -> logits."""

    def __init__(self, blocks: list[nn.Module], outputs: int, num_classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Sequential(*classifier(outputs, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(x))
        return logits

    def reparameterized(self) -> nn.Module:
        """Return a copy with one convolution for each block; `edgekit.models.reparameterize` calls this method."""
        merged = copy.deepcopy(self)
        merged.blocks = nn.Sequential(
            *(block.merged() if isinstance(block, RepVGGBlock) else block for block in merged.blocks)
        )
        return merged.train(self.training)


def repvgg(
    input_shape: tuple[int, ...],
    num_classes: int,
    alpha: float = 0.25,
    top: float = 0.25,
    blocks: list[int] | None = None,
    reduction: int | None = None,
) -> nn.Module:
    """Build a network (N, C, H, W) -> logits.

    `alpha` multiplies the channels of the first three stages, and `top` those of the last. `blocks` has one entry for
    each of the four stages, by default 1, 2, 4, 1. `reduction` divides height and width; by default, the size of the
    image decides (`layers.default_reduction`). With alpha 0.25, top 0.25 and 10 classes there are, in training, 247,050
    parameters on 1 channel and 247,370 on 3. The merged network has 221,082 on 3 channels, and 15.8 M multiply-adds at
    32x32x3.
    """
    check_multipliers("repvgg", alpha=alpha, top=top)
    depths = [1, 2, 4, 1] if blocks is None else list(blocks)
    if len(depths) != len(WIDTHS) or min(depths) < 1:
        raise ValueError(f"repvgg needs blocks for {len(WIDTHS)} stages, one or more in each, got {depths}")
    multiples = (alpha, alpha, alpha, top)
    widths = [round_channels(width * multiple) for width, multiple in zip(WIDTHS, multiples, strict=True)]
    stem_stride, *firsts = strides_for(input_shape, (2, 2, 2, 2, 2), reduction)
    inputs = min(64, widths[0])
    layers: list[nn.Module] = [RepVGGBlock(image_channels(input_shape), inputs, stem_stride)]
    for outputs, depth, first in zip(widths, depths, firsts, strict=True):
        for index in range(depth):
            layers.append(RepVGGBlock(inputs, outputs, 1 if index else first))
            inputs = outputs
    return RepVGG(layers, inputs, num_classes)
