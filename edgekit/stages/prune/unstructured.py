"""Unstructured magnitude pruning on a gradual schedule (Zhu & Gupta, 2017): zeros, in the same shapes.

In 1x1 convolutions alone, where that is asked for: they are what XNNPACK has sparse kernels for (Elsen et al., 2020).
"""

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

    One threshold for all chosen layers at each step; the caller fine-tunes between steps and calls the function after
    every optimiser step. There are no steps where the network has no such layer.
    """
    if hindrance(module, spec, config):
        return
    for step in range(1, config.sparsity_steps + 1):
        sparsity = sparsity_at(step, config.sparsity_steps, config.sparsity)
        keep = _masks(chosen(module, config.sparsity_layers), sparsity)

        def zero(_: nn.Module, keep: dict[str, Tensor] = keep) -> None:
            with torch.no_grad():
                for name, weight in chosen(module, config.sparsity_layers).items():
                    weight.mul_(keep[name].to(weight.device))

        zero(module)
        yield sparsity, zero


def hindrance(module: nn.Module, spec: ModelSpec, config: Config) -> str:
    """Why no weight can be zeroed: the network has no layer of those that are meant; empty where it has."""
    if chosen(module, config.sparsity_layers):
        return ""
    advice = "; write all" if config.sparsity_layers != "all" and prunable(module) else ""
    return f"prune.sparsity_layers: got {config.sparsity_layers}, and {spec.called} has no such layer{advice}"


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


def chosen(module: nn.Module, layers: str) -> dict[str, Tensor]:
    """Those of `all` layers, or of the `pointwise` ones: convolutions of 1x1 with one group."""
    found = prunable(module)
    if layers == "all":
        return found
    owners = {f"{name}.weight": layer for name, layer in module.named_modules()}
    return {name: weight for name, weight in found.items() if _is_pointwise(owners[name])}


def _is_pointwise(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1


def measured_sparsity(module: nn.Module) -> float:
    """Share of exact zeros among the prunable weights."""
    weights = list(prunable(module).values())
    return sum(int((w == 0).sum()) for w in weights) / max(sum(w.numel() for w in weights), 1)


def _masks(weights: dict[str, Tensor], sparsity: float) -> dict[str, Tensor]:
    magnitudes = torch.cat([w.detach().abs().flatten() for w in weights.values()])
    rank = round(sparsity * magnitudes.numel())
    threshold = magnitudes.kthvalue(rank).values if rank else magnitudes.new_tensor(-1.0)
    return {name: (w.detach().abs() > threshold).to(w.dtype) for name, w in weights.items()}
