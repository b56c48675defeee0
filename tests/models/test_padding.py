"""A network that pads as TensorFlow does computes what TensorFlow computes with the same weights."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.models.efficientnet_lite import efficientnet_lite0
from edgekit.models.features import Features
from edgekit.models.layers import InvertedResidual, Padding, same_padding

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def network(padding: Padding, shape: tuple[int, ...] = (3, 32, 32)) -> nn.Module:
    """A small EfficientNet-Lite with norms as after a training."""
    torch.manual_seed(0)
    module = efficientnet_lite0(shape, 10, alpha=0.1, last=16, reduction=32, padding=padding).train()
    with torch.no_grad():
        for _ in range(20):
            module(torch.randn(8, *shape))
    return module.eval()


def in_tensorflow(module: nn.Module, x: Any) -> Any:
    """Apply the layers of a network with TensorFlow, whose convolutions all pad by "SAME"; x is (N, H, W, C)."""
    import tensorflow as tf

    if isinstance(module, InvertedResidual):
        y = in_tensorflow(module.body, x)
        return x + y if module.residual else y
    if isinstance(module, nn.Sequential):
        for part in module:
            x = in_tensorflow(part, x)
        return x
    weights = [value.detach().numpy() for value in (*module.parameters(), *module.buffers())]
    if isinstance(module, nn.Conv2d):
        strides = (1, *module.stride, 1)
        if module.groups > 1:
            return tf.nn.depthwise_conv2d(x, weights[0].transpose(2, 3, 0, 1), strides, "SAME")
        return tf.nn.conv2d(x, weights[0].transpose(2, 3, 1, 0), strides, "SAME")
    if isinstance(module, nn.BatchNorm2d):
        scale, offset, mean, variance, _ = weights
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, 1e-3)
    if isinstance(module, nn.Linear):
        return x @ weights[0].T + weights[1]
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return tf.reduce_mean(x, (1, 2))
    assert isinstance(module, nn.ZeroPad2d | nn.ReLU6 | nn.Flatten)
    return tf.nn.relu6(x) if isinstance(module, nn.ReLU6) else x


@pytest.mark.parametrize("size", [(32, 32), (33, 46), (40, 27)])
def test_it_computes_what_tensorflow_does(size: tuple[int, int]) -> None:
    module = network("tensorflow", (3, *size))
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(2))
    expected = np.asarray(in_tensorflow(module, x.permute(0, 2, 3, 1).numpy()))
    with torch.no_grad():
        assert np.allclose(module(x).numpy(), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        assert not np.allclose(network("symmetric", (3, *size))(x).numpy(), expected, rtol=0.05)


@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_same_padding_gives_the_size_of_the_input_divided_by_the_stride(kernel: int, stride: int) -> None:
    for size in range(1, 20):
        before, after = same_padding(size, kernel, stride)
        assert 0 <= after - before <= 1
        covered = size + before + after if before + after else size - (size - kernel) % stride
        assert (covered - kernel) / stride + 1 == -(-size // stride)


def test_both_paddings_have_the_same_tensors_and_feature_maps() -> None:
    symmetric, tensorflow = network("symmetric"), network("tensorflow")
    tensors = tensorflow.state_dict()
    assert list(tensors) == list(symmetric.state_dict())
    assert all(torch.equal(value, tensors[name]) for name, value in symmetric.state_dict().items())
    with Features(symmetric, (3, 32, 32)) as one, Features(tensorflow, (3, 32, 32)) as other:
        assert [each.shape for each in one()] == [each.shape for each in other()]
