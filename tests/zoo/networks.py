"""Networks nobody here wrote, and such as users write: random weights, each a function of `input_shape`, `num_classes`.

Those of `transformers` are its own classes with a small configuration; their outputs are unpacked to the logits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


class _Logits(nn.Module):
    """A classifier of `transformers`: a picture in, its logits out."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(pixel_values=x).logits


def _lively(module: nn.Module) -> nn.Module:
    """Weights under which a signal lives through many layers: those of `transformers` are small, for training."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    return module


def hf_mobilenet_v2(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(
        num_channels=input_shape[0], image_size=input_shape[1], depth_multiplier=0.35, num_labels=num_classes
    )
    return _lively(_Logits(MobileNetV2ForImageClassification(config)))


def hf_resnet_bottleneck(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        num_channels=input_shape[0],
        embedding_size=16,
        hidden_sizes=[32, 64, 128],
        depths=[2, 2, 2],
        layer_type="bottleneck",
        num_labels=num_classes,
    )
    return _Logits(ResNetForImageClassification(config))


def hf_convnext(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        num_channels=input_shape[0],
        image_size=input_shape[1],
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 2, 1],
        patch_size=2,
        num_labels=num_classes,
    )
    return _Logits(ConvNextForImageClassification(config))


class _ScaledBlock(nn.Module):
    """ConvNeXt's block, channels last, with its layer scale along four axes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((1, 1, 1, width), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.back(nn.functional.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext_scaled(input_shape: Shape, num_classes: int) -> nn.Module:
    """As users write it: converters fold the scale into the dense layer before it, bias and all."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 4, 4), _ScaledBlock(16), nn.Conv2d(16, 32, 2, 2), _ScaledBlock(32),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(32), nn.Linear(32, num_classes),
    )  # fmt: skip


def hf_efficientnet(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        num_channels=input_shape[0],
        image_size=input_shape[1],
        width_coefficient=0.25,
        depth_coefficient=0.4,
        hidden_dim=320,
        num_labels=num_classes,
    )
    return _lively(_Logits(EfficientNetForImageClassification(config)))


def hf_efficientnet_adaptive(input_shape: Shape, num_classes: int) -> nn.Module:
    """Pooled as the refusal of its own window advises: that one is as wide as the channels are many."""
    module = hf_efficientnet(input_shape, num_classes)
    module.model.efficientnet.pooler = nn.AdaptiveAvgPool2d(1)
    return module


def hf_vit(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        num_channels=input_shape[0],
        image_size=input_shape[1],
        patch_size=8,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        num_labels=num_classes,
    )
    return _Logits(ViTForImageClassification(config))


def hf_segformer_classifier(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import SegformerConfig, SegformerForImageClassification

    config = SegformerConfig(
        num_channels=input_shape[0],
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[2, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[3, 3],
        strides=[2, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        num_labels=num_classes,
    )
    return _Logits(SegformerForImageClassification(config))


def hf_poolformer(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import PoolFormerConfig, PoolFormerForImageClassification

    config = PoolFormerConfig(
        num_channels=input_shape[0],
        depths=[1, 1, 1, 1],
        hidden_sizes=[16, 24, 32, 48],
        patch_sizes=[3, 3, 3, 3],
        strides=[2, 2, 2, 2],
        padding=[1, 1, 1, 1],
        mlp_ratio=2.0,
        drop_path_rate=0.0,
        num_labels=num_classes,
    )
    return _lively(_Logits(PoolFormerForImageClassification(config)))


def hf_swin(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        num_channels=input_shape[0],
        image_size=input_shape[1],
        patch_size=2,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        drop_path_rate=0.0,
        num_labels=num_classes,
    )
    return _Logits(SwinForImageClassification(config))


def hf_mobilevit(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import MobileViTConfig, MobileViTForImageClassification

    config = MobileViTConfig(
        num_channels=input_shape[0],
        image_size=input_shape[1],
        hidden_sizes=[24, 32, 40],
        neck_hidden_sizes=[8, 16, 24, 32, 40, 48, 64],
        num_attention_heads=4,
        num_labels=num_classes,
    )
    return _lively(_Logits(MobileViTForImageClassification(config)))


def hf_regnet(input_shape: Shape, num_classes: int) -> nn.Module:
    from transformers import RegNetConfig, RegNetForImageClassification

    config = RegNetConfig(
        num_channels=input_shape[0],
        embedding_size=16,
        hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 2, 1],
        groups_width=8,
        num_labels=num_classes,
    )
    return _Logits(RegNetForImageClassification(config))


class _Pooled(nn.Module):
    """A backbone of `transformers`, its last map pooled, and a head."""

    def __init__(self, backbone: Any, features: int, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(features, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.backbone(x).feature_maps[-1]), 1))


def hf_resnet_d(input_shape: Shape, num_classes: int) -> nn.Module:
    """ResNet-D, as RT-DETR's backbone: three convolutions at the stem, shortcuts that pool before they project."""
    from transformers import RTDetrResNetConfig
    from transformers.models.rt_detr.modeling_rt_detr_resnet import RTDetrResNetBackbone

    config = RTDetrResNetConfig(
        num_channels=input_shape[0],
        embedding_size=16,
        hidden_sizes=[16, 32, 48],
        depths=[1, 1, 1],
        layer_type="basic",
    )
    return _Pooled(RTDetrResNetBackbone(config), 48, num_classes)


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], features: int, num_classes: int) -> None:
        super().__init__()
        self.cells = kind(features, 24, batch_first=True)
        self.head = nn.Linear(24, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][:, -1])


def gru(input_shape: Shape, num_classes: int) -> nn.Module:
    """Windows (time, features)."""
    return _Recurrent(nn.GRU, input_shape[-1], num_classes)


def lstm(input_shape: Shape, num_classes: int) -> nn.Module:
    """Windows (time, features)."""
    return _Recurrent(nn.LSTM, input_shape[-1], num_classes)


def conv1d(input_shape: Shape, num_classes: int) -> nn.Module:
    """Windows (channels, time)."""
    return nn.Sequential(
        nn.Conv1d(input_shape[0], 16, 5, stride=2, padding=2), nn.BatchNorm1d(16), nn.ReLU(),
        nn.Conv1d(16, 32, 3, padding=2, dilation=2), nn.BatchNorm1d(32), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(32, num_classes),
    )  # fmt: skip


def autoencoder(input_shape: Shape, num_classes: int) -> nn.Module:
    """A vector in, the same vector out."""
    features = input_shape[0]
    return nn.Sequential(
        nn.Linear(features, 32), nn.BatchNorm1d(32), nn.ReLU(),
        nn.Linear(32, 8), nn.ReLU(),
        nn.Linear(8, 32), nn.ReLU(),
        nn.Linear(32, features),
    )  # fmt: skip


class _UNet(nn.Module):
    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.first, self.second = _block(channels, 8), _block(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.last = _block(16, 8)
        self.head = nn.Conv2d(8, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.first(x)
        coarse = self.second(nn.functional.max_pool2d(fine, 2))
        return self.head(self.last(torch.cat([fine, self.up(coarse)], dim=1)))


def _block(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inner, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU())


def unet(input_shape: Shape, num_classes: int) -> nn.Module:
    """A class for every pixel."""
    return _UNet(input_shape[0], num_classes)


class _Branches(nn.Module):
    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.left, self.right = _block(channels, 8), _block(channels, 8)
        self.head = nn.Linear(16, num_classes)

    def join(self, a: Tensor, b: Tensor) -> Tensor:
        both = torch.cat([self.left(a), self.right(b)], dim=1)
        return self.head(both.mean(dim=(2, 3)))


class _TwoInputs(_Branches):
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return self.join(a, b)


class _StackedInputs(_Branches):
    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[1] // 2
        return self.join(x[:, :half], x[:, half:])


def two_inputs(input_shape: Shape, num_classes: int) -> nn.Module:
    return _TwoInputs(input_shape[0], num_classes)


def two_inputs_stacked(input_shape: Shape, num_classes: int) -> nn.Module:
    """What the refusal of two inputs advises: both stand in one, and are taken apart inside."""
    return _StackedInputs(input_shape[0] // 2, num_classes)


class _Heads(nn.Module):
    def __init__(self, channels: int, num_classes: int, *, joined: bool) -> None:
        super().__init__()
        self.body = _block(channels, 16)
        self.kind, self.place = nn.Linear(16, num_classes - 4), nn.Linear(16, 4)
        self.joined = joined

    def forward(self, x: Tensor) -> Any:
        found = self.body(x).mean(dim=(2, 3))
        heads = self.kind(found), self.place(found)
        return torch.cat(heads, dim=1) if self.joined else heads


def two_heads(input_shape: Shape, num_classes: int) -> nn.Module:
    return _Heads(input_shape[0], num_classes, joined=False)


def two_heads_joined(input_shape: Shape, num_classes: int) -> nn.Module:
    """What the refusal of two outputs advises: one after the other."""
    return _Heads(input_shape[0], num_classes, joined=True)


def hard_swish(input_shape: Shape, num_classes: int) -> nn.Module:
    """Depthwise blocks with squeeze-and-excite and hard-swish, as in MobileNetV3."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.Hardswish(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16), nn.Hardswish(),
        _SqueezeExcite(16), nn.Conv2d(16, 32, 1), nn.BatchNorm2d(32), nn.Hardswish(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, num_classes),
    )  # fmt: skip


class _SqueezeExcite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.less, self.more = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.relu(self.less(x.mean(dim=(2, 3), keepdim=True)))
        return x * nn.functional.hardsigmoid(self.more(weight))


def group_norm(input_shape: Shape, num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 3, stride=2, padding=1), nn.GroupNorm(4, 16), nn.SiLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, num_classes),
    )  # fmt: skip


class _Shuffled(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.groups = groups
        self.inner = nn.Conv2d(channels, channels, 1, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        mixed = self.inner(x).reshape(n, self.groups, c // self.groups, h, w).transpose(1, 2)
        return torch.relu(mixed.reshape(n, c, h, w))


def channel_shuffle(input_shape: Shape, num_classes: int) -> nn.Module:
    """Grouped convolutions whose channels are shuffled, as in ShuffleNet."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 24, 3, stride=2, padding=1), nn.ReLU(), _Shuffled(24, 3), _Shuffled(24, 4),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, num_classes),
    )  # fmt: skip


class _Mixer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.along = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.second(x))


class _MlpMixer(nn.Module):
    def __init__(self, input_shape: Shape, num_classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(input_shape[0], 32, 8, stride=8)
        tokens = (input_shape[1] // 8) * (input_shape[2] // 8)
        self.blocks = nn.Sequential(_Mixer(tokens, 32), _Mixer(tokens, 32))
        self.head = nn.Linear(32, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.patches(x).flatten(2).transpose(1, 2)).mean(dim=1))


def mlp_mixer(input_shape: Shape, num_classes: int) -> nn.Module:
    return _MlpMixer(input_shape, num_classes)


def dense_connections(input_shape: Shape, num_classes: int) -> nn.Module:
    """Each layer sees all before it, as in DenseNet; leaky and parametric activations."""
    return _Dense(input_shape[0], num_classes)


class _Dense(nn.Module):
    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 12, 3, stride=2, padding=1), nn.LeakyReLU(0.1))
        self.first = nn.Sequential(nn.BatchNorm2d(12), nn.PReLU(12), nn.Conv2d(12, 12, 3, padding=1))
        self.second = nn.Sequential(nn.BatchNorm2d(24), nn.ELU(), nn.Conv2d(24, 12, 3, padding=1))
        self.head = nn.Linear(36, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.cat([x, self.first(x)], dim=1)
        x = torch.cat([x, self.second(x)], dim=1)
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class _Spectrum(nn.Module):
    """A Fourier transform inside: no target has one."""

    def __init__(self, input_shape: Shape, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(input_shape[1] * (input_shape[2] // 2 + 1), num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.fft.rfft2(x.mean(dim=1)).abs().flatten(1))


def spectrum(input_shape: Shape, num_classes: int) -> nn.Module:
    return _Spectrum(input_shape, num_classes)


class _Branching(nn.Module):
    """What it computes depends on the values it sees: no graph can hold it."""

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.body, self.head = _block(channels, 8), nn.Linear(8, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        found = self.body(x).mean(dim=(2, 3))
        return self.head(found) if float(found.sum()) > 1.0 else self.head(-found)


def data_dependent(input_shape: Shape, num_classes: int) -> nn.Module:
    return _Branching(input_shape[0], num_classes)
