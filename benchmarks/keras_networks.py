"""The reference networks of `edgekit.models` written natively in Keras, with the weights of their PyTorch modules.

Layer for layer the same: PyTorch pads a stride-2 convolution by one on every side, Keras' `same` only behind, so such
layers have a ZeroPadding2D and `valid` here; batch norms keep PyTorch's epsilon.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

SHAPE = (32, 32, 3)


def build(network: str, module: nn.Module, classes: int = 10) -> Any:
    """A Keras model, (1, 32, 32, 3) -> logits (1, classes), that computes what the PyTorch `module` does."""
    import keras

    weights = _Weights(module)
    x = keras.Input(SHAPE, batch_size=1)
    y = NETWORKS[network](x, weights)
    y = keras.layers.GlobalAveragePooling2D()(y)
    model = keras.Model(x, weights.dense(y, classes))
    weights.finished()
    return model


class _Weights:
    """Makes Keras layers in the order in which PyTorch registered its own, each with that one's weights."""

    def __init__(self, module: nn.Module) -> None:
        kinds = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
        self._left: Iterator[nn.Module] = iter([part for part in module.modules() if isinstance(part, kinds)])

    def conv(self, x: Any, kernel: int, stride: int = 1, norm: bool = True, relu: bool = True) -> Any:
        """A convolution, per channel where PyTorch's has a group for each, with its norm and activation."""
        from keras import layers

        source: Any = next(self._left)
        assert isinstance(source, nn.Conv2d) and source.kernel_size[0] == kernel and source.stride[0] == stride
        options = {"strides": stride, "padding": "same", "use_bias": source.bias is not None}
        if stride > 1 and kernel > 1:
            x = layers.ZeroPadding2D(kernel // 2)(x)
            options["padding"] = "valid"
        values = source.weight.detach().numpy()
        if source.groups > 1:
            layer, values = layers.DepthwiseConv2D(kernel, **options), values.transpose(2, 3, 0, 1)
        else:
            layer, values = layers.Conv2D(source.out_channels, kernel, **options), values.transpose(2, 3, 1, 0)
        y = layer(x)
        layer.set_weights([values, *([source.bias.detach().numpy()] if source.bias is not None else [])])
        y = self._norm(y) if norm else y
        return layers.ReLU()(y) if relu else y

    def _norm(self, x: Any) -> Any:
        from keras import layers

        source: Any = next(self._left)
        assert isinstance(source, nn.BatchNorm2d)
        layer = layers.BatchNormalization(epsilon=source.eps)
        y = layer(x)
        tensors = (source.weight, source.bias, source.running_mean, source.running_var)
        layer.set_weights([np.asarray(tensor.detach().numpy()) for tensor in tensors])
        return y

    def dense(self, x: Any, classes: int) -> Any:
        """The head."""
        from keras import layers

        source: Any = next(self._left)
        assert isinstance(source, nn.Linear) and source.out_features == classes
        layer = layers.Dense(classes)
        y = layer(x)
        layer.set_weights([source.weight.detach().numpy().T, source.bias.detach().numpy()])
        return y

    def finished(self) -> None:
        """ValueError where a layer of PyTorch's has found no counterpart."""
        left = list(self._left)
        if left:
            raise ValueError(f"{len(left)} layers of the PyTorch module have no counterpart in Keras: {left}")


def _resnet8(x: Any, weights: _Weights) -> Any:
    from keras import layers

    y, channels = weights.conv(x, 3), 16
    for outputs, stride in ((16, 1), (32, 2), (64, 2)):
        residual = weights.conv(weights.conv(y, 3, stride), 3, relu=False)
        plain = stride == 1 and channels == outputs
        shortcut = y if plain else weights.conv(y, 1, stride, norm=False, relu=False)
        y, channels = layers.ReLU()(layers.Add()([residual, shortcut])), outputs
    return y


def _ds_cnn(x: Any, weights: _Weights) -> Any:
    y = weights.conv(x, 3, 2)
    for _ in range(4):
        y = weights.conv(weights.conv(y, 3), 1)
    return y


def _mobilenet_v1(x: Any, weights: _Weights) -> Any:
    y = weights.conv(x, 3)
    for stride in (1, 1, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1):
        y = weights.conv(weights.conv(y, 3, stride), 1)
    return y


def _mobilenet_v2(x: Any, weights: _Weights) -> Any:
    from keras import layers

    y = weights.conv(x, 3)
    for expansion, repeats, first in ((1, 1, 1), (6, 2, 1), (6, 3, 2), (6, 4, 2), (6, 3, 1), (6, 3, 2), (6, 1, 1)):
        for index in range(repeats):
            stride = first if index == 0 else 1
            widened = weights.conv(y, 1) if expansion != 1 else y
            narrowed = weights.conv(weights.conv(widened, 3, stride), 1, relu=False)
            same = stride == 1 and narrowed.shape == y.shape
            y = layers.Add()([y, narrowed]) if same else narrowed
    return weights.conv(y, 1)


NETWORKS: dict[str, Callable[[Any, _Weights], Any]] = {
    "resnet8": _resnet8,
    "ds_cnn": _ds_cnn,
    "mobilenet_v1": _mobilenet_v1,
    "mobilenet_v2": _mobilenet_v2,
}


def convert(model: Any, calibration: np.ndarray) -> dict[str, bytes]:
    """`.tflite` files by TensorFlow's own converter, float32 and full-integer int8 (int8 in and out).

    `calibration` is (n, 32, 32, 3) float32.
    """
    import tensorflow as tf

    made = {}
    for precision in ("fp32", "int8"):
        converter = tf.lite.TFLiteConverter.from_keras_model(model)
        if precision == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
            converter.representative_dataset = lambda: ([x[None]] for x in calibration)
            converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            converter.inference_input_type = converter.inference_output_type = tf.int8
        made[precision] = converter.convert()
    return made


def main(network: str, folder: Path) -> None:
    """From `folder`'s model and calibration.npy to keras-PRECISION.tflite and what Keras answers, keras.npy."""
    from edgekit.models import store

    module, _ = store.load(folder / "model")
    calibration = np.load(folder / "calibration.npy")
    model = build(network, module.eval())
    np.save(folder / "keras.npy", np.concatenate([np.asarray(model(x[None])) for x in calibration]))
    for precision, content in convert(model, calibration).items():
        (folder / f"keras-{precision}.tflite").write_bytes(content)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
