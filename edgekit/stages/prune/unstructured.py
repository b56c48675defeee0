"""Unstructured magnitude pruning on a gradual schedule (Zhu & Gupta, 2017): zeros, in the same shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from edgekit.data import Split
from edgekit.models.store import ModelSpec
from edgekit.stages.prune.config import Config


def steps(
    module: nn.Module, spec: ModelSpec, config: Config, train: Split
) -> Iterator[tuple[float, Callable[[nn.Module], None]]]:
    """Zero weights of `module` in place, step by step; yield the sparsity aimed at and what puts the zeros back.

    One threshold for the whole network at each step; the caller fine-tunes between steps and calls the function
    after every optimiser step.
    """
    for step in range(1, config.sparsity_steps + 1):
        sparsity = sparsity_at(step, config.sparsity_steps, config.sparsity)
        keep = _masks(module, sparsity)

        def zero(_: nn.Module, keep: dict[str, Tensor] = keep) -> None:
            with torch.no_grad():
                for name, weight in prunable(module).items():
                    weight.mul_(keep[name].to(weight.device))

        zero(module)
        yield sparsity, zero


def sparsity_at(step: int, steps: int, final: float) -> float:
    """Cubic schedule of Zhu & Gupta (2017), eq. 1, from 0 to `final`: fast at first, then slower."""
    return final * (1 - (1 - step / steps) ** 3)


def prunable(module: nn.Module) -> dict[str, Tensor]:
    """Weights of convolutions and dense layers, by name; norms and biases are left alone."""
    return {
        f"{name}.weight": layer.weight
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d)
    }


def measured_sparsity(module: nn.Module) -> float:
    """Share of exact zeros among the prunable weights."""
    weights = list(prunable(module).values())
    return sum(int((w == 0).sum()) for w in weights) / sum(w.numel() for w in weights)


def _masks(module: nn.Module, sparsity: float) -> dict[str, Tensor]:
    weights = prunable(module)
    magnitudes = torch.cat([w.detach().abs().flatten() for w in weights.values()])
    rank = round(sparsity * magnitudes.numel())
    threshold = magnitudes.kthvalue(rank).values if rank else magnitudes.new_tensor(-1.0)
    return {name: (w.detach().abs() > threshold).to(w.dtype) for name, w in weights.items()}
