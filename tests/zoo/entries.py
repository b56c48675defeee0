"""The architectures of the zoo: what each takes and gives, and what it is an example of."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgekit.core.tasks import Task
from edgekit.models import store

PICTURE, LARGER = (3, 32, 32), (3, 64, 64)
OURS, THEIRS = "edgekit.models", "tests.zoo.networks"


@dataclass(frozen=True)
class Entry:
    """One architecture. `refused`: what `store.build` says of it, where it cannot be a bundle's model at all."""

    name: str
    builder: str
    what: str
    shape: tuple[int, ...] = PICTURE
    classes: int = 10
    output_shape: tuple[int, ...] | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    refused: str = ""
    task: Task = "classification"

    def spec(self) -> store.ModelSpec:
        """As a stage would describe it."""
        kind = {3: "image", 2: "window", 1: "vector"}[len(self.shape)]
        raw = {"kind": kind, "shape": list(self.shape), "dtype": "float32"}
        return store.ModelSpec(
            builder=self.builder,
            kwargs=self.kwargs,
            input_shape=self.shape,
            num_classes=self.classes,
            output_shape=self.output_shape,
            classes=tuple(map(str, range(self.classes))),
            raw=raw,
        )

    def samples(self, count: int = 16) -> np.ndarray:
        """(count, *shape) float32; pictures are blocks, as networks see no classes in noise."""
        generator = np.random.default_rng(0)
        if len(self.shape) < 3:
            return generator.normal(0, 1, (count, *self.shape)).astype(np.float32)
        channels, height, width = self.shape
        blocks = generator.normal(0, 1, (count, channels, height // 4, width // 4)).astype(np.float32)
        return blocks.repeat(4, axis=2).repeat(4, axis=3)

    def save(self, folder: Path) -> None:
        """The network, random but for its norms, which have seen its samples, as a saved one; ModelError."""
        spec = self.spec()
        module = store.build(spec, seed=0)
        module.train()
        for part in module.modules():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.eval()  # norms see what they will see, and the same at each call
        with torch.no_grad():
            for _ in range(10):
                module(torch.from_numpy(self.samples()))
        store.save(folder, module.eval(), spec)


ENTRIES = (
    Entry("ResNet-8", f"{OURS}.resnet:resnet8", "reference network"),
    Entry("ResNet-20", f"{OURS}.resnet:resnet", "reference network", kwargs={"depth": 20, "width": 16}),
    Entry("ResNet-18", f"{OURS}.resnet:resnet18", "reference network", kwargs={"width": 8}),
    Entry("DS-CNN", f"{OURS}.ds_cnn:ds_cnn", "reference network, depthwise"),
    Entry("MobileNetV1", f"{OURS}.mobilenet_v1:mobilenet_v1", "reference network", kwargs={"alpha": 0.25}),
    Entry("MobileNetV2", f"{OURS}.mobilenet_v2:mobilenet_v2", "reference network", kwargs={"alpha": 0.35}),
    Entry(
        "MobileNetV3-Small",
        f"{OURS}.mobilenet_v3:mobilenet_v3_small",
        "reference network, squeeze-excite",
        kwargs={"alpha": 0.25, "last": 64},
    ),
    Entry(
        "MobileNetV3-Large",
        f"{OURS}.mobilenet_v3:mobilenet_v3_large",
        "reference network, squeeze-excite",
        kwargs={"alpha": 0.25, "last": 64},
    ),
    Entry(
        "MobileNetV4-Conv-Small",
        f"{OURS}.mobilenet_v4:mobilenet_v4_small",
        "reference network, filters before and behind",
        kwargs={"alpha": 0.25, "last": 64},
    ),
    Entry(
        "EfficientNet-Lite0",
        f"{OURS}.efficientnet_lite:efficientnet_lite0",
        "reference network, ReLU6",
        kwargs={"last": 64},
    ),
    Entry(
        "EfficientNet-Lite1",
        f"{OURS}.efficientnet_lite:efficientnet_lite1",
        "reference network, TensorFlow's padding",
        kwargs={"alpha": 0.25, "last": 64, "padding": "tensorflow"},
    ),
    Entry("MCUNet-like", f"{OURS}.mcunet:mcunet", "reference network, 7×7 depthwise", kwargs={"alpha": 0.5}),
    Entry("RepVGG", f"{OURS}.repvgg:repvgg", "reference network, branches that are merged", kwargs={"alpha": 0.125}),
    Entry("TC-ResNet8", f"{OURS}.tc_resnet:tc_resnet", "reference network, windows (time, channels)", shape=(64, 6)),
    Entry("BC-ResNet", f"{OURS}.bc_resnet:bc_resnet", "reference network, spectra (1, time, mels)", shape=(1, 48, 40)),
    Entry("Conv1d", f"{OURS}.conv1d:conv1d", "reference network, windows (time, channels)", shape=(128, 6)),
    Entry("MobileNetV2, transformers", f"{THEIRS}:hf_mobilenet_v2", "inverted residuals, TensorFlow's padding", LARGER),
    Entry("ResNet-50 style, transformers", f"{THEIRS}:hf_resnet_bottleneck", "bottlenecks"),
    Entry("ConvNeXt, transformers", f"{THEIRS}:hf_convnext", "layer norm, GELU, 7×7 depthwise"),
    Entry("ConvNeXt, own layer scale", f"{THEIRS}:convnext_scaled", "a scale that is folded into a dense layer"),
    Entry("EfficientNet, transformers", f"{THEIRS}:hf_efficientnet", "squeeze-excite, swish", LARGER),
    Entry("EfficientNet, pooled adaptively", f"{THEIRS}:hf_efficientnet_adaptive", "the same, as is advised", LARGER),
    Entry("ViT, transformers", f"{THEIRS}:hf_vit", "attention over patches"),
    Entry("SegFormer, transformers", f"{THEIRS}:hf_segformer_classifier", "attention with reduced keys"),
    Entry("PoolFormer, transformers", f"{THEIRS}:hf_poolformer", "pooling in attention's place"),
    Entry("Swin, transformers", f"{THEIRS}:hf_swin", "attention in shifted windows"),
    Entry("MobileViT, transformers", f"{THEIRS}:hf_mobilevit", "convolutions and attention", LARGER),
    Entry("RegNet, transformers", f"{THEIRS}:hf_regnet", "grouped convolutions, squeeze-excite"),
    Entry("ResNet-D, transformers", f"{THEIRS}:hf_resnet_d", "shortcuts that pool"),
    Entry("GRU", f"{THEIRS}:gru", "recurrent, windows (time, features)", shape=(24, 6)),
    Entry("LSTM", f"{THEIRS}:lstm", "recurrent, windows (time, features)", shape=(24, 6)),
    Entry("1-D CNN", f"{THEIRS}:conv1d", "windows (channels, time)", shape=(6, 64)),
    Entry("Autoencoder", f"{THEIRS}:autoencoder", "a vector in, the same out", shape=(64,), classes=64, task="anomaly"),
    Entry("U-Net", f"{THEIRS}:unet", "a class for every pixel", output_shape=(10, 32, 32), task="segmentation"),
    Entry("Two inputs", f"{THEIRS}:two_inputs", "two pictures", refused="it takes several inputs"),
    Entry("Two inputs, stacked", f"{THEIRS}:two_inputs_stacked", "two pictures in one", shape=(6, 32, 32)),
    Entry("Two heads", f"{THEIRS}:two_heads", "class and place", refused="one output: join them"),
    Entry("Two heads, joined", f"{THEIRS}:two_heads_joined", "class and place in one"),
    Entry("MobileNetV3 style", f"{THEIRS}:hard_swish", "depthwise, squeeze-excite, hard-swish"),
    Entry("Group norm", f"{THEIRS}:group_norm", "group norm, SiLU"),
    Entry("ShuffleNet style", f"{THEIRS}:channel_shuffle", "grouped convolutions, shuffled channels"),
    Entry("MLP-Mixer", f"{THEIRS}:mlp_mixer", "dense layers across and along patches"),
    Entry("DenseNet style", f"{THEIRS}:dense_connections", "dense connections, leaky, PReLU, ELU"),
    Entry("Spectrum", f"{THEIRS}:spectrum", "a Fourier transform inside"),
    Entry("Branching", f"{THEIRS}:data_dependent", "control flow that depends on values"),
)
