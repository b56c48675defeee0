"""Networks for the convert tests. A child process builds them by name, so they stand in a module of their own."""

from __future__ import annotations

import os
import signal
import time

import torch
from torch import Tensor, nn
from torch.nn import functional


class Tiny(nn.Module):
    """Two convolutions and a dense layer, (N, C, H, W) -> logits."""

    def __init__(self, channels: int, width: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.deep(self.stem(x))), 1))


class SwappedWhenTraced(Tiny):
    """Channels reversed in TorchScript's trace alone, which is how OpenVINO takes a network in."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flip(1) if torch.jit.is_tracing() else x)


class Amplifying(Tiny):
    """Its answers go through the logistic map, which doubles a difference of rounding at each of `steps`."""

    steps = 17

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        state = torch.sigmoid(logits)
        for _ in range(self.steps):
            state = 3.99 * state * (1 - state)
        return logits + 4 * state


class Chaotic(Amplifying):
    """So many steps that nothing but rounding is left."""

    steps = 60

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 3


class AmplifyingWrong(Amplifying):
    """Amplifies rounding, and is changed by one percent in TorchScript's trace."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (0.1 if torch.jit.is_tracing() else 0.0)


class Odd(nn.Module):
    """What users write: depthwise, hard-swish, squeeze-excite, group norm, a channel shuffle, one layer used twice."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 8, 3, 1, padding="same")
        self.norm = nn.GroupNorm(2, 8)
        self.depthwise = nn.Conv2d(8, 8, 5, 2, 2, groups=8)
        self.squeeze = nn.Conv2d(8, 4, 1)
        self.excite = nn.Conv2d(4, 8, 1)
        self.twice = nn.Conv2d(8, 8, 1)
        self.gain = nn.Parameter(torch.full((8, 1, 1), 0.5))
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.hardswish(self.norm(self.stem(x)))
        x = functional.relu6(self.depthwise(x))
        weight = torch.sigmoid(self.excite(functional.relu(self.squeeze(x.mean((2, 3), keepdim=True)))))
        x = x * weight
        n, c, h, w = x.shape
        x = x.reshape(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        x = self.twice(functional.gelu(self.twice(x))) * self.gain + x
        x = torch.cat([functional.max_pool2d(x, 2), functional.avg_pool2d(x, 2)], dim=1)
        return self.head(x.mean((2, 3)))


class Branching(nn.Module):
    """Asks a tensor for its value: no exporter can follow that."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) if x.sum() > 0 else self.head(-x)


class Decomposing(nn.Module):
    """Uses an operator that no target has."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x) * torch.linalg.svdvals(x.reshape(1, 2, -1)).sum()


class Guarded(Tiny):
    """Asks a tensor for its value: exporters cannot follow, and a trace takes the way that every sample takes."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.sum() > -1e9 else -x)


def guarded(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    return Guarded(input_shape[0], width, num_classes)


def tiny(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    return Tiny(input_shape[0], width, num_classes)


def swapped(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    return SwappedWhenTraced(input_shape[0], width, num_classes)


def amplifying(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    return Amplifying(input_shape[0], width, num_classes)


def amplifying_wrong(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    return AmplifyingWrong(input_shape[0], width, num_classes)


def chaotic(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    return Chaotic(input_shape[0], width, num_classes)


def odd(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Odd(input_shape[0], num_classes)


def dense(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(input_shape[0], 16), nn.ReLU(), nn.Linear(16, num_classes))


def wide(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Nearly all of its bytes are weights of dense layers."""
    return nn.Sequential(nn.Linear(input_shape[0], 512), nn.ReLU(), nn.Linear(512, 128), nn.Linear(128, num_classes))


def convolutions(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """No dense layer."""
    layers = nn.Conv2d(input_shape[0], 8, 3), nn.ReLU(), nn.Conv2d(8, num_classes, 3), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten())


class Waving(nn.Module):
    """Between two dense layers an operator that no target computes in integers."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(features, 16)
        self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.sin(self.first(x)))


def waving(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Waving(input_shape[0], num_classes)


def branching(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Branching(input_shape[0], num_classes)


def decomposing(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Decomposing(input_shape[0], num_classes)


def crashing() -> nn.Module:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("not reached")


def killed() -> nn.Module:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("not reached")


def greedy() -> nn.Module:
    return nn.Linear(1 << 30, 1 << 30)


def leaving() -> nn.Module:
    print("Check failed: the converter ran into itself", flush=True)
    os._exit(17)


def hanging() -> nn.Module:
    time.sleep(600)
    raise AssertionError("not reached")


class Turning(Tiny):
    """Height and width change places between its two convolutions: a transpose that no converter can take away."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.flatten(self.pool(self.deep(self.stem(x).transpose(2, 3))), 1))


def turning(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Turning(input_shape[0], 8, num_classes)


class Tokened(nn.Module):
    """A learnt vector stands beside each sample's own, written down for one sample: the batch cannot be freed."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.ones(1, 3))
        self.head = nn.Linear(features + 3, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.cat([x, self.token.sin()], dim=1))


class Viewed(nn.Module):
    """Writes the batch of 1 down where it flattens."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 4, 3, 2)
        self.head = nn.LazyLinear(classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.stem(x)).view(1, -1))


class Attending(nn.Module):
    """Attention over places, with the batch behind them, as PyTorch's own modules have it."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 8, 3, 2, 1)
        self.attention = nn.MultiheadAttention(8, 2)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        places = self.stem(x).flatten(2).permute(2, 0, 1)
        found, _ = self.attention(places, places, places, need_weights=False)
        return self.head(found.mean(0))


class Neighbourly(nn.Module):
    """What it says of a sample depends, a little, on another one of the call."""

    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + 0.05 * x.flip(0))


def tokened(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Tokened(input_shape[0], num_classes)


def viewed(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    module = Viewed(input_shape[0], num_classes)
    module(torch.zeros(1, *input_shape))
    return module


def attending(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Attending(input_shape[0], num_classes)


def neighbourly(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Neighbourly(input_shape[0], num_classes)
