"""Networks that torch-pruning cannot cut everywhere, as people write them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class LeNet(nn.Module):
    """PyTorch's first tutorial: `view` with a number behind a convolution."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.pool = nn.Conv2d(channels, 6, 5), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2, 2)
        self.fc1, self.fc2 = nn.Linear(16 * 5 * 5, 32), nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(functional.relu(self.conv1(x)))
        x = self.pool(functional.relu(self.conv2(x)))
        return self.fc2(functional.relu(self.fc1(x.view(-1, 16 * 5 * 5))))


def lenet(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return LeNet(input_shape[0], num_classes)


class Strided(nn.Module):
    """`as_strided` behind a convolution: on a tensor with its channels last it answers, and wrongly."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(channels, 8, 8, 8), nn.Linear(8 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x).as_strided((len(x), 8 * 16), (8 * 16, 1)))


def strided(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Strided(input_shape[0], num_classes)


class Volume(nn.Module):
    """A convolution over three axes, whose weights know no channels last."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv3d(1, 4, 3, padding=1), nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x[:, None]).mean((2, 3, 4)))


def volume(num_classes: int) -> nn.Module:
    return Volume(num_classes)


class TrainedByView(nn.Module):
    """A head that only training has, with a `view` behind a convolution."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(channels, 4, 8, 8), nn.Linear(4 * 16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(x.view(-1, 4 * 16) if self.training else x.reshape(-1, 4 * 16))


def trained_by_view(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return TrainedByView(input_shape[0], num_classes)


class Caching(nn.Module):
    """It keeps a tensor that its first call makes."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(channels, 4, 8, 8), nn.Linear(4, classes)
        self.grid: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        if self.grid is None:
            self.grid = torch.linspace(0.5, 1, x.shape[-1])
        return self.head((x * self.grid).mean((2, 3)))


def caching(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Caching(input_shape[0], num_classes)


def lazy(num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.LazyConv2d(8, 3, 4, 1), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(num_classes)
    )


def normalized(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Local response normalization before a flattening: torch-pruning's graph runs in a circle."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 8, 3, 2), nn.LocalResponseNorm(5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3),
        nn.LocalResponseNorm(5), nn.Flatten(), nn.Linear(12 * 5 * 5, num_classes),
    )  # fmt: skip


class Recurrent(nn.Module):
    def __init__(self, features: int, classes: int, *, bidirectional: bool) -> None:
        super().__init__()
        layers = 1 + bidirectional
        self.rnn = nn.LSTM(features, 12, layers, batch_first=True, bidirectional=bidirectional)
        self.head = nn.Linear(12 * layers, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0].mean(1))


class Gated(nn.Module):
    """A layer that no cut begins with, and the head."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(features, 12, batch_first=True), nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0].mean(1))


def gru(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Gated(input_shape[-1], num_classes)


def lstm(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Recurrent(input_shape[-1], num_classes, bidirectional=False)


def bidirectional(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Recurrent(input_shape[-1], num_classes, bidirectional=True)


class Attention(nn.Module):
    """Attention as people write it: heads that are parted by `view`, with numbers of the whole network."""

    def __init__(self, channels: int, classes: int, width: int = 24, heads: int = 4) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(channels, width, 8, 8), nn.Linear(width, classes)
        self.heads, self.width = heads, width
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x).flatten(2).transpose(1, 2)
        q, k, v = (each(x).view(len(x), -1, self.heads, 6).transpose(1, 2) for each in (self.q, self.k, self.v))
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.head((x + self.out(mixed.transpose(1, 2).reshape(len(x), -1, self.width))).mean(1))


def attention(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Attention(input_shape[0], num_classes)


class Block(nn.Module):
    """ShuffleNetV2's, as torchvision writes it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width // 2, width // 2, 1), nn.BatchNorm2d(width // 2)

    def forward(self, x: Tensor) -> Tensor:
        left, right = x.chunk(2, 1)
        x = torch.cat((left, self.norm(self.conv(right)).relu()), 1)
        count, channels, height, width = x.size()
        x = torch.transpose(x.view(count, 2, channels // 2, height, width), 1, 2).contiguous()
        return x.view(count, channels, height, width)


def pooled(*layers: nn.Module, width: int, classes: int) -> nn.Module:
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def shuffle(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    stem = nn.Conv2d(input_shape[0], 16, 3, 2, 1)
    return pooled(stem, nn.ReLU(), Block(16), Block(16), width=16, classes=num_classes)


def pixel_shuffle(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    stem = nn.Conv2d(input_shape[0], 16, 3, 2, 1)
    return pooled(stem, nn.PixelShuffle(2), nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU(), width=8, classes=num_classes)


def grouped_transpose(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    stem, up = nn.Conv2d(input_shape[0], 16, 3, 4, 1), nn.ConvTranspose2d(16, 16, 4, 2, 1, groups=4)
    return pooled(stem, nn.ReLU(), up, nn.ReLU(), width=16, classes=num_classes)


class Transformer(nn.Module):
    """torch's own attention and encoder layer, with a mask."""

    def __init__(self, features: int, places: int, classes: int, width: int = 24) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(features, width), nn.Linear(width, classes)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 48, batch_first=True)
        self.register_buffer("mask", torch.triu(torch.ones(places, places, dtype=torch.bool), 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = x + self.attention(x, x, x, attn_mask=self.mask, need_weights=False)[0]
        return self.head(self.encoder(x)[:, -1])


def transformer(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    places, features = input_shape
    return Transformer(features, places, num_classes)
