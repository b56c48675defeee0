"""A network of the user's, tried on a few samples before hours are spent on it: what no later step could bear."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from edgekit.core.errors import ModelError
from edgekit.models import output_check, store
from edgekit.models.eager import eager_input, join_outputs
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.models.reparameterize import is_mergeable, merge_and_compare
from edgekit.models.spec import ModelSpec
from edgekit.models.user_errors import FAULTS, failure_of
from edgekit.runner.errors import bounded_recursion

if TYPE_CHECKING:
    from edgekit.data import Data

SAMPLES = 4
RESHAPING = tuple(f"{name}Backward" for name in ("View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Clone"))
"""What torch calls the gradients of operations that leave every value as it is."""
BATCH_TOLERANCE = 1e-2
"""Share of the largest answer by which a sample's answers alone and among others may differ: not a rounding."""


def build_and_check(spec: ModelSpec, seed: int, data: Data) -> nn.Module:
    """A fresh network that will be trained, as `store.build` makes it, tried on samples of validation."""
    module = store.build(spec, seed)
    check_network(module, spec, eager_input(data.validation.x[:SAMPLES], spec.preprocess), trains=True)
    return module


def check_network(module: nn.Module, spec: ModelSpec, x: Tensor, *, trains: bool) -> None:
    """ModelError where the network does not give each sample of `x` (n, *input) an answer of its own, the same again.

    `trains`: it will be trained, so a step of training is tried on a copy. The network itself is left as it was.
    """
    called, x = spec.called, x[:SAMPLES].clone()
    _python(module, called)
    _one_route(called, list(_routes(module, spec, x)))
    alone = torch.cat([_answer(module, spec, one) for one in x.split(1)])
    _plain(called, alone)
    if spec.task == "classification":
        _no_sigmoid(module, called, x[:1])
    if not torch.equal(alone, torch.cat([_answer(module, spec, one) for one in x.split(1)])):
        raise ModelError(
            f"{called}: answers the same sample differently each time, in eval mode; draw nothing at random there: "
            "F.dropout(x) drops always, F.dropout(x, training=self.training) does not"
        )
    together = _answer(module, spec, x)
    if tuple(together.shape) != tuple(alone.shape):
        raise ModelError(
            f"{called}: answers {len(x)} samples at once with shape {tuple(together.shape)}, and "
            f"{tuple(alone.shape)} is wanted; keep the first axis, that of the samples: x.flatten(1), not x.flatten()"
        )
    if float((together - alone).abs().max()) > BATCH_TOLERANCE * max(float(alone.abs().max()), 1e-6):
        raise ModelError(
            f"{called}: answers a sample differently in a batch with others, and a device runs one at a time; "
            "compute nothing over the batch axis: a batch norm keeps running statistics, a mean starts at dim 1"
        )
    if trains:
        _trained(module, spec, x)
    if is_mergeable(module):
        merge_and_compare(copy.deepcopy(module), spec, x)


def _python(module: nn.Module, called: str) -> None:
    """ModelError where a layer is TorchScript: torch follows none, and exports none."""
    scripted = [name for name, layer in module.named_modules() if isinstance(layer, torch.jit.ScriptModule)]
    if scripted:
        raise ModelError(
            f"{called}: {f'layer {scripted[0]}' if scripted[0] else 'it'} is TorchScript, which can be neither "
            "traced nor exported; give the module that it was made of"
        )


def _one_route(called: str, routes: list[list[str]]) -> None:
    """ModelError unless all samples, and the zeros that come last, reach the same layers."""
    first, *others, zeros = routes
    other = next((route for route in (*others, zeros) if route != first), first)
    if other == first:
        return
    differing = [name for name in (*other, *first) if (name in first) != (name in other)]
    whom = "not for every sample"
    if all(route == first for route in others):
        skipped = [name for name in first if name not in zeros]
        differing, whom = skipped or differing, f"{'not' if skipped else 'only'} for zeros, which converters trace"
    layers = ", ".join(dict.fromkeys(differing[:3])) or "not as often for each, or in another order"
    raise ModelError(
        f"{called}: which layers it runs depends on the values that come in ({layers}{f': {whom}' if differing else ''}"
        "), and a converted file runs the same for all; compute both sides, and choose with torch.where"
    )


@bounded_recursion()
def _answer(module: nn.Module, spec: ModelSpec, x: Tensor) -> Tensor:
    """In eval mode; ModelError where it raises, or changes its input or itself."""
    given = x.clone()
    kept = {name: (buffer, buffer.detach().clone()) for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            out = join_outputs(module(given))
    except FAULTS as error:
        raise failure_of(f"{spec.called}: fails on a sample of the data", error, module) from error
    if not torch.equal(given, x):
        raise ModelError(
            f"{spec.called}: changes its input in place, which changes the sample for whatever runs next; let the "
            "first step make a new tensor: x = x * 2, not x *= 2, and inplace=False"
        )
    changed = [name for name, (buffer, before) in kept.items() if not _equal(buffer, before)]
    if changed:
        raise ModelError(
            f"{spec.called}: changes {', '.join(changed[:3])} while it answers, in eval mode, so an answer would "
            "depend on those before it; change it only `if self.training`"
        )
    return out


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def _plain(called: str, out: Tensor) -> None:
    """ModelError unless the answers are finite."""
    if not bool(torch.isfinite(out).all()):
        raise ModelError(
            f"{called}: answers a sample of the data with NaN or infinity; look for a division by zero, a log, or "
            "NaN among the weights, and check preprocess: samples may come in unscaled"
        )


def _no_sigmoid(module: nn.Module, called: str, x: Tensor) -> None:
    """ModelError where the last operation that changes the values of classes is a sigmoid; reshaping does not."""
    try:
        with torch.enable_grad():
            node = join_outputs(module(x.clone())).grad_fn
    except FAULTS:  # it answers all the same; whether it can be trained is tried apart
        return
    while node is not None and node.name().startswith(RESHAPING):
        node = node.next_functions[0][0]
    if node is not None and node.name().startswith(("SigmoidBackward", "HardsigmoidBackward")):
        raise ModelError(
            f"{called}: ends in a sigmoid, and training and the runner apply softmax to what it gives; let it return "
            "what stands before the sigmoid, or export it to ONNX and give the file as model.source, which keeps it"
        )


def _routes(module: nn.Module, spec: ModelSpec, x: Tensor) -> Iterator[list[str]]:
    """Names of the layers that each sample reaches, and one of zeros, in order."""
    for one in (*x.split(1), torch.zeros_like(x[:1])):
        with _followed(module) as route:
            _answer(module, spec, one)
        yield route


@contextmanager
def _followed(module: nn.Module) -> Iterator[list[str]]:
    route: list[str] = []

    def reached(name: str, *_: Any) -> None:
        route.append(name)

    leaves = [(name, layer) for name, layer in module.named_modules() if not list(layer.children())]
    hooks: list[RemovableHandle] = []
    try:
        for name, layer in leaves:
            hooks.append(layer.register_forward_pre_hook(partial(reached, name)))
        yield route
    finally:
        for hook in hooks:
            hook.remove()


@bounded_recursion()
def _trained(module: nn.Module, spec: ModelSpec, x: Tensor) -> None:
    """ModelError where a step of training cannot be taken; on a copy."""
    called, parameters = spec.called, list(module.parameters())
    ways = "give its trained weights as model.weights, or let the builder return a network that can be trained"
    if not parameters:
        raise ModelError(f"{called}: has no parameters, so there is nothing to train; {ways}")
    if not any(parameter.requires_grad for parameter in parameters):
        raise ModelError(f"{called}: has no parameter with requires_grad, so nothing can be trained; {ways}")
    x = torch.cat([x, x]) if len(x) < 2 else x
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            copied = copy.deepcopy(module).train()
            with strided_pointwise_as_slices(copied):
                out = copied(x)
                if isinstance(out, Tensor | tuple | list):
                    join_outputs(out).float().square().mean().backward()
    except FAULTS as error:
        raise failure_of(f"{called}: fails in training mode", error, module) from error
    output_check.check_output(out, spec, len(x), "in training mode ")
