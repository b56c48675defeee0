"""Pruned channels of flattened feature maps that are joined with others."""

from __future__ import annotations

import pytest
import torch
import torch_pruning
from torch import Tensor, nn

from edgekit.stages.prune import torch_pruning_fixes

DEAD = (1, 5)


class Branches(nn.Module):
    """A map of `side` squared places for each channel, flattened, beside what `kind` says, joined in its order."""

    def __init__(self, kind: str, side: int) -> None:
        super().__init__()
        self.kind = kind
        self.look, self.see = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(1, 8, 3)
        self.pool = nn.AdaptiveAvgPool2d(side)
        self.read, self.words = nn.Linear(6, 8), nn.Embedding(10, 8)
        width = 8 * side**2 + (8 * side**2 if "map" in kind else 8) + 8 * ("three" in kind)
        self.decide = nn.Linear(width, 3)

    def forward(self, picture: Tensor, numbers: Tensor, ids: Tensor) -> Tensor:
        seen = self.pool(self.look(picture)).flatten(1)
        seen = torch.relu(seen) if "relu" in self.kind else seen
        if "map" in self.kind:
            beside = self.pool(self.see(picture)).flatten(1)
        else:
            beside = torch.relu(self.read(numbers)) if "numbers" in self.kind else self.words(ids).mean(1)
        parts = [beside, seen] if "last" in self.kind else [seen, beside]
        if "three" in self.kind:
            parts.append(torch.relu(self.read(numbers)))
        scores: Tensor = self.decide(torch.cat(parts, 1))
        return scores


@pytest.mark.parametrize("side", [1, 2])
@pytest.mark.parametrize(
    "kind",
    ["numbers", "numbers last", "numbers last relu", "words", "words last", "words three", "map", "map last three"],
)
def test_dead_channels_go_and_the_answers_stay(kind: str, side: int) -> None:
    """Of the least weight, they are pruned first; were others pruned in their place, the answers would change."""
    torch_pruning_fixes.install_corrections()
    for seed in range(3):
        torch.manual_seed(seed)
        network = Branches(kind, side).eval()
        inputs = [torch.randn(1, 1, 8, 8), torch.randn(1, 6), torch.randint(0, 10, (1, 4))]
        with torch.no_grad():
            for layer in (network.look, network.see, network.read):
                layer.weight[list(DEAD)] = 0
                layer.bias[list(DEAD)] = 0  # type: ignore[index]
            network.words.weight[:, list(DEAD)] = 0
            before = network(*inputs)
        pruner = torch_pruning.pruner.BasePruner(
            network,
            inputs,
            importance=torch_pruning.importance.MagnitudeImportance(group_reduction="first"),
            pruning_ratio=0.25,
            ignored_layers=[network.decide],
            iterative_steps=2,
        )
        for _ in range(2):
            pruner.step()
        assert network.look.out_channels == 6
        with torch.no_grad():
            assert torch.allclose(network(*inputs), before, atol=1e-5)


class Tokens(nn.Module):
    """Maps of two sizes as tokens, one behind the other: what is flattened are the places, not the channels."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.near, self.far = nn.Conv2d(1, 8, 4, 4), nn.Conv2d(1, 8, 8, 8)
        self.mix = nn.Linear(8, 16) if axis == 1 else nn.Conv1d(8, 16, 1)
        self.decide = nn.Linear(16, 3)

    def forward(self, picture: Tensor) -> Tensor:
        maps = [self.near(picture).flatten(2), self.far(picture).flatten(2)]
        tokens = torch.cat([each.transpose(1, 2) if self.axis == 1 else each for each in maps], self.axis)
        scores: Tensor = self.decide(torch.relu(self.mix(tokens)).mean(self.axis))
        return scores


@pytest.mark.parametrize("axis", [1, 2])
def test_tokens_that_are_joined_keep_their_channels(axis: int) -> None:
    torch_pruning_fixes.install_corrections()
    torch.manual_seed(0)
    network, picture = Tokens(axis).eval(), torch.randn(1, 1, 16, 16)
    with torch.no_grad():
        for layer in (network.near, network.far):
            layer.weight[list(DEAD)] = 0
            layer.bias[list(DEAD)] = 0  # type: ignore[index]
        before = network(picture)
    pruner = torch_pruning.pruner.BasePruner(
        network,
        picture,
        importance=torch_pruning.importance.MagnitudeImportance(group_reduction="first"),
        pruning_ratio=0.25,
        ignored_layers=[network.mix, network.decide],
    )
    pruner.step()
    assert network.near.out_channels == network.far.out_channels == 6
    with torch.no_grad():
        assert torch.allclose(network(picture), before, atol=1e-5)
