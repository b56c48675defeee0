"""Unstructured magnitude pruning on a gradual schedule (Zhu & Gupta, 2017): weights become zero, shapes stay.

With `sparsity_layers: pointwise`, only 1x1 convolutions are pruned, because XNNPACK has sparse kernels for them (Elsen
et al., 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from edgekit.data import Split
from edgekit.models.store import ModelSpec
from edgekit.stages.prune.config import PruneConfig


def steps(
    module: nn.Module, spec: ModelSpec, config: PruneConfig, train: Split
) -> Iterator[tuple[float, Callable[[nn.Module], None]]]:
    """Set weights of `module` to zero in place, step by step.

    Yields the sparsity of each step and a function that sets the same weights to zero again. The caller fine-tunes
    between steps and calls this function after every optimizer update. Each step uses one magnitude threshold for all
    layers. There are no steps if the network has no suitable layer.
    """
    if unsupported_reason(module, spec, config):
        return
    for step in range(1, config.sparsity_steps + 1):
        sparsity = sparsity_at(step, config.sparsity_steps, config.sparsity)
        keep = _masks(weights_to_zero(module, config.sparsity_layers), sparsity)

        def zero(_: nn.Module, keep: dict[str, Tensor] = keep) -> None:
            with torch.no_grad():
                for name, weight in weights_to_zero(module, config.sparsity_layers).items():
                    weight.mul_(keep[name].to(weight.device))

        zero(module)
        yield sparsity, zero


def unsupported_reason(module: nn.Module, spec: ModelSpec, config: PruneConfig) -> str:
    """Return the reason if the network has no layer that `sparsity_layers` selects; empty if it has one."""
    if weights_to_zero(module, config.sparsity_layers):
        return ""
    advice = "; write all" if config.sparsity_layers != "all" and prunable_weights(module) else ""
    return f"prune.sparsity_layers: got {config.sparsity_layers}, and {spec.called} has no such layer{advice}"


def sparsity_at(step: int, steps: int, final: float) -> float:
    """Return the sparsity at `step`: the cubic schedule of Zhu & Gupta (2017), eq. 1, rises from 0 to `final`."""
    return final * (1 - (1 - step / steps) ** 3)


def prunable_weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the weights of convolutions and dense layers by name. Norms and biases are never pruned."""
    return {
        f"{name}.weight": layer.weight
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d)
    }


def weights_to_zero(module: nn.Module, layers: str) -> dict[str, Tensor]:
    """Return the prunable weights of `all` layers, or of the `pointwise` ones (1x1 convolutions with one group)."""
    weights = prunable_weights(module)
    if layers == "all":
        return weights
    owners = {f"{name}.weight": layer for name, layer in module.named_modules()}
    return {name: weight for name, weight in weights.items() if _is_pointwise(owners[name])}


def _is_pointwise(layer: nn.Module) -> bool:
    return isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1


def measured_sparsity(module: nn.Module) -> float:
    """Return the fraction of prunable weights that are exactly zero."""
    weights = list(prunable_weights(module).values())
    return sum(int((w == 0).sum()) for w in weights) / max(sum(w.numel() for w in weights), 1)


def _masks(weights: dict[str, Tensor], sparsity: float) -> dict[str, Tensor]:
    magnitudes = torch.cat([w.detach().abs().flatten() for w in weights.values()])
    rank = round(sparsity * magnitudes.numel())
    threshold = magnitudes.kthvalue(rank).values if rank else magnitudes.new_tensor(-1.0)
    return {name: (w.detach().abs() > threshold).to(w.dtype) for name, w in weights.items()}
