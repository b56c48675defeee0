"""Batch norms that a converter does not fold are folded before it sees them, and nothing else is touched."""

from __future__ import annotations

import torch
from torch import nn

from edgekit.models.conv1d import conv1d
from edgekit.models.ds_cnn import ds_cnn
from edgekit.targets.torch_graph import fold_batchnorms


def trained(module: nn.Module, shape: tuple[int, ...]) -> nn.Module:
    """With running statistics that are not those of a fresh network."""
    module.train()
    with torch.no_grad():
        for seed in range(5):
            module(3 * torch.rand(16, *shape, generator=torch.Generator().manual_seed(seed)))
    return module.eval()


def test_a_network_over_time_computes_the_same_without_its_norms() -> None:
    network = trained(conv1d((64, 3), 4), (64, 3))
    made = fold_batchnorms(network)
    assert not any(isinstance(part, nn.BatchNorm1d) for part in made.modules())
    assert sum(isinstance(part, nn.BatchNorm1d) for part in network.modules()) == 3
    x = torch.rand(8, 64, 3)
    with torch.inference_mode():
        assert torch.allclose(made(x), network(x), atol=1e-4)


def test_networks_of_images_and_networks_that_cannot_be_traced_stay_as_they_are() -> None:
    pictures = trained(ds_cnn((3, 16, 16), 4, width=8, blocks=1), (3, 16, 16))
    assert fold_batchnorms(pictures) is pictures

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x) if x.sum() > 0 else x

    odd = Odd().eval()
    assert fold_batchnorms(odd) is odd
