"""A user's own networks, as odd as users' networks are, for the tests of the store."""

import torch
from torch import nn

NOT_CALLABLE = 3


class Odd(nn.Module):
    """Transposed and grouped convolutions, GroupNorm, PReLU, a bare parameter."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(1, channels)
        self.act = nn.PReLU(channels)
        self.widen = nn.Conv2d(channels, channels * 2, 3, padding=1, groups=channels)
        self.up = nn.ConvTranspose2d(channels * 2, channels, 2, stride=2)
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.up(self.widen(self.act(self.norm(self.first(x))))) * self.scale
        return self.head(x.mean((2, 3)))


def odd(channels: int = 8) -> nn.Module:
    return Odd(channels)


def perceptron(input_shape: tuple[int, ...], num_classes: int, hidden: int = 16) -> nn.Module:
    return nn.Sequential(
        nn.Linear(input_shape[0], hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, num_classes)
    )


def anything(**kwargs: object) -> nn.Module:
    return perceptron(**kwargs)  # type: ignore[arg-type]


def needs_more(input_shape: tuple[int, ...], flavour: str) -> nn.Module:
    return nn.Identity()


def no_module() -> int:
    return 3


def wrong_outputs(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(num_classes + 1))


def two_outputs() -> nn.Module:
    class Pair(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x, x

    return Pair()


def tied() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.LazyLinear(10), nn.Linear(10, 10), nn.Linear(10, 10))
    module(torch.zeros(1, 1024))
    module[3].weight = module[2].weight
    return module
