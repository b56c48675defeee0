"""Check the user's network on a few samples, so that faults show up before hours of training or conversion."""

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
"""The names that PyTorch gives to the gradients of operations that change the shape of a tensor, but not its values."""
BATCH_TOLERANCE = 1e-2
"""The largest allowed difference between a sample's answer in a batch and its answer alone.

The difference is given as a share of the largest answer. Rounding alone causes smaller differences.
"""


def build_and_check(spec: ModelSpec, seed: int, data: Data) -> nn.Module:
    """Build a network with `store.build` and check it on samples of the validation split, including a training step."""
    module = store.build(spec, seed)
    check_network(module, spec, eager_input(data.validation.x[:SAMPLES], spec.preprocess), trains=True)
    return module


def check_network(module: nn.Module, spec: ModelSpec, x: Tensor, *, trains: bool) -> None:
    """Check that a network can be trained, traced and converted. The network itself is not changed.

    Parameters
    ----------
    x
        Samples as the network takes them: (n, *input). The first few are used.
    trains
        The network will be trained, so a training step is tried on a copy.

    Raises
    ------
    ModelError
        The network gives answers that are random or not finite, or that depend on the other samples in a batch or on
        earlier calls. Or it runs different layers for different input values, or it cannot be trained. The message says
        how to fix the network.
    """
    called, x = spec.called, x[:SAMPLES].clone()
    _check_python(module, called)
    _check_same_route(called, list(_routes(module, spec, x)))
    alone = torch.cat([_answer(module, spec, one) for one in x.split(1)])
    _check_finite(called, alone)
    if spec.task == "classification":
        _check_no_sigmoid(module, called, x[:1])
    if not torch.equal(alone, torch.cat([_answer(module, spec, one) for one in x.split(1)])):
        raise ModelError(
            f"{called}: answers the same sample differently each time, in eval mode; use no random numbers in eval "
            "mode: F.dropout(x) always drops, F.dropout(x, training=self.training) does not"
        )
    batch_output = _answer(module, spec, x)
    if tuple(batch_output.shape) != tuple(alone.shape):
        raise ModelError(
            f"{called}: answers {len(x)} samples at once with shape {tuple(batch_output.shape)}, expected "
            f"{tuple(alone.shape)}; keep the first axis, that of the samples: x.flatten(1), not x.flatten()"
        )
    if float((batch_output - alone).abs().max()) > BATCH_TOLERANCE * max(float(alone.abs().max()), 1e-6):
        raise ModelError(
            f"{called}: answers a sample differently in a batch with others, and a device runs one at a time; "
            "compute nothing over the batch axis: a batch norm keeps running statistics, a mean starts at dim 1"
        )
    if trains:
        _check_training_step(module, spec, x)
    if is_mergeable(module):
        merge_and_compare(copy.deepcopy(module), spec, x)


def _check_python(module: nn.Module, called: str) -> None:
    """Raise ModelError if a layer is TorchScript, which PyTorch can neither trace nor export."""
    scripted = [name for name, layer in module.named_modules() if isinstance(layer, torch.jit.ScriptModule)]
    if scripted:
        raise ModelError(
            f"{called}: {f'layer {scripted[0]}' if scripted[0] else 'it'} is TorchScript, which can be neither "
            "traced nor exported; use the Python module that it was made from"
        )


def _check_same_route(called: str, routes: list[list[str]]) -> None:
    """Raise ModelError unless all `routes` have the same layers; the last one is the route of an input of zeros."""
    first, *others, zeros = routes
    other = next((route for route in (*others, zeros) if route != first), first)
    if other == first:
        return
    differing = [name for name in (*other, *first) if (name in first) != (name in other)]
    when = "not for every sample"
    if all(route == first for route in others):
        skipped = [name for name in first if name not in zeros]
        differing, when = skipped or differing, f"{'not' if skipped else 'only'} for zeros, which converters trace"
    layers = ", ".join(dict.fromkeys(differing[:3])) or "not as often for each, or in another order"
    raise ModelError(
        f"{called}: which layers it runs depends on the values that come in ({layers}{f': {when}' if differing else ''}"
        "), but a converted file runs the same for all; compute both sides, and choose with torch.where"
    )


@bounded_recursion()
def _answer(module: nn.Module, spec: ModelSpec, x: Tensor) -> Tensor:
    """Run the network in eval mode; raise ModelError if it raises, or changes its input or its buffers."""
    inputs = x.clone()
    buffers = {name: (buffer, buffer.detach().clone()) for name, buffer in module.named_buffers()}
    try:
        with torch.no_grad():
            out = join_outputs(module(inputs))
    except FAULTS as error:
        raise failure_of(f"{spec.called}: fails on a sample of the data", error, module) from error
    if not torch.equal(inputs, x):
        raise ModelError(
            f"{spec.called}: changes its input in place, which changes the sample for whatever runs next; let the "
            "first step make a new tensor: x = x * 2, not x *= 2, and inplace=False"
        )
    changed = [name for name, (buffer, before) in buffers.items() if not _equal(buffer, before)]
    if changed:
        raise ModelError(
            f"{spec.called}: changes {', '.join(changed[:3])} while it answers, in eval mode, so an answer would "
            "depend on the answers before it; change it only `if self.training`"
        )
    return out


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(torch.nan_to_num(one), torch.nan_to_num(other))


def _check_finite(called: str, out: Tensor) -> None:
    """Raise ModelError unless the answers are finite."""
    if not bool(torch.isfinite(out).all()):
        raise ModelError(
            f"{called}: answers a sample of the data with NaN or infinity; look for a division by zero, a log, or "
            "NaN among the weights, and check preprocess: samples may come in unscaled"
        )


def _check_no_sigmoid(module: nn.Module, called: str, x: Tensor) -> None:
    """Raise ModelError if the last operation is a sigmoid, apart from operations that only reshape its output."""
    try:
        with torch.enable_grad():
            node = join_outputs(module(x.clone())).grad_fn
    except FAULTS:  # the network answers without gradients; whether it can be trained is checked separately
        return
    while node is not None and node.name().startswith(RESHAPING):
        node = node.next_functions[0][0]
    if node is not None and node.name().startswith(("SigmoidBackward", "HardsigmoidBackward")):
        raise ModelError(
            f"{called}: ends in a sigmoid, but training and the runner apply softmax to its output; let it return "
            "the values before the sigmoid, or export it to ONNX and set model.source to that file, which keeps it"
        )


def _routes(module: nn.Module, spec: ModelSpec, x: Tensor) -> Iterator[list[str]]:
    """Yield the names of the layers that each sample reaches, in order, and at the end those that zeros reach."""
    for one in (*x.split(1), torch.zeros_like(x[:1])):
        with _recorded_route(module) as route:
            _answer(module, spec, one)
        yield route


@contextmanager
def _recorded_route(module: nn.Module) -> Iterator[list[str]]:
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
def _check_training_step(module: nn.Module, spec: ModelSpec, x: Tensor) -> None:
    """Try a training step on a copy, and raise ModelError if it fails."""
    called, parameters = spec.called, list(module.parameters())
    advice = "give its trained weights as model.weights, or let the builder return a network that can be trained"
    if not parameters:
        raise ModelError(f"{called}: has no parameters, so there is nothing to train; {advice}")
    if not any(parameter.requires_grad for parameter in parameters):
        raise ModelError(f"{called}: has no parameter with requires_grad, so nothing can be trained; {advice}")
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
