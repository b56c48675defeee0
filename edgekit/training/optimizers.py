"""Optimizers of `torch.optim` by name, with the arguments of their classes, and the parameter groups that they update.

The options of a config are those of the torch class, by torch's own names. Arguments that edgekit sets itself are
refused with a pointer to the option to use instead.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import nn

from edgekit.core.config import TrainOptions, format_arguments, shortened_repr, suggest
from edgekit.core.errors import ConfigError
from edgekit.training.transfer import Backbone

CLASSES: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
}
DEFAULTS: dict[str, dict[str, Any]] = {"sgd": {"momentum": 0.9, "nesterov": True}}
"""Arguments whose defaults differ from torch's."""
REFUSED = {
    "params": "edgekit passes the weights of the network; leave it out",
    "lr": "set learning_rate instead",
    "weight_decay": "set the option weight_decay of the training instead",
    "foreach": "it is always on, because it is faster and gives the same bits; leave it out",
    "fused": "it gives other bits than the loop over the weights; leave it out",
    "capturable": "it only serves CUDA graphs, which edgekit does not use; leave it out",
    "differentiable": "edgekit computes no gradient of an optimizer step; leave it out",
    "maximize": "the loss is always minimized; leave it out",
}
"""Arguments that a config cannot set, with what to do instead."""
FIELD = "optimizer_options"


def check(options: TrainOptions, where: str = FIELD) -> None:
    """Check `optimizer_options` against the class of the optimizer. `where` is their place in the config, for messages.

    Raises
    ------
    ConfigError
        An argument is unknown, cannot be set, or has a value that torch refuses.
    """
    optimizer_class = CLASSES[options.optimizer]
    title = f"torch.optim.{optimizer_class.__name__}"
    defaults = {name: each.default for name, each in inspect.signature(optimizer_class).parameters.items()}
    allowed = [name for name in defaults if name not in REFUSED]
    for name, value in options.optimizer_options.items():
        if name in REFUSED:
            raise ConfigError(f"{where}.{name}: got {shortened_repr(value)}, but {REFUSED[name]}")
        if name not in allowed:
            raise ConfigError(f"{where}.{name}: {title} has no such argument; {suggest(name, allowed)}")
        if expected := _type_fault(value, defaults[name]):
            raise ConfigError(f"{where}.{name}: got {shortened_repr(value)}; write {expected}")
    try:
        optimizer_class([nn.Parameter(torch.zeros(1))], lr=options.learning_rate, **_arguments(options))  # type: ignore[call-arg]
    except (ValueError, TypeError, RuntimeError) as error:
        raise ConfigError(f"{where}: {title} refuses {format_arguments(_arguments(options))}: {error}") from None


def build(module: nn.Module, options: TrainOptions, backbone: Backbone | None = None) -> torch.optim.Optimizer:
    """Return the optimizer of the options for the parameters of a module that require a gradient."""
    groups = parameter_groups(module, options, backbone)
    # `foreach` gives the same bits as a loop over the parameters; `fused` rounds differently
    return CLASSES[options.optimizer](groups, foreach=True, **_arguments(options))  # type: ignore[call-arg]


def parameter_groups(
    module: nn.Module, options: TrainOptions, backbone: Backbone | None = None
) -> list[dict[str, Any]]:
    """Return the parameter groups of a module, each with its peak learning rate and its weight decay.

    Parameters of one axis, which are biases and the scales of normalizations, do not decay. A backbone with trained
    weights has a learning rate of its own.
    """
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for decays in (True, False):
        for parameter in module.parameters():
            if parameter.requires_grad and (parameter.ndim > 1) == decays:
                rate = options.learning_rate * (backbone.rate if backbone and parameter in backbone else 1)
                groups.setdefault((options.weight_decay if decays else 0.0, rate), []).append(parameter)
    return [{"params": each, "lr": rate, "weight_decay": decay} for (decay, rate), each in groups.items()]


def _arguments(options: TrainOptions) -> dict[str, Any]:
    return {**DEFAULTS.get(options.optimizer, {}), **options.optimizer_options}


def _type_fault(value: Any, default: Any) -> str:
    """Return what to write in place of a value whose type differs from that of the default; empty if it does not."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, tuple):
        fits = isinstance(value, (list, tuple)) and len(value) == len(default) and all(map(_is_number, value))
        return "" if fits else f"{len(default)} numbers, for example {list(default)}"
    return "" if _is_number(value) else "a number"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
