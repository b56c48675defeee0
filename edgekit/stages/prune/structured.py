"""Structured pruning: whole channels, over the dependency graph of the network (torch-pruning; Fang et al., 2023)."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch_pruning
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.data import Split
from edgekit.models import store
from edgekit.models.joined import joined
from edgekit.models.store import ModelSpec
from edgekit.models.text_transformer import SelfAttention
from edgekit.stages.prune import bounds, flattened
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.importance import MEASURES, accumulate_gradients, bound

flattened.install()
bounds.install()

CUT: tuple[type[Any], ...] = (nn.Linear, nn.modules.conv._ConvNd, nn.LSTM)
"""Layers that a cut may begin with."""


@dataclass(frozen=True)
class Cuttable:
    """What a trial found out: layers that keep their width, because without some of it the network breaks.

    `refused` says why nothing at all can be cut; empty where something can.
    """

    pinned: tuple[str, ...] = ()
    refused: str = ""

    def describe(self) -> str:
        """One line for the user; empty where every layer can be cut."""
        if self.refused:
            return f"prune: no channels are removed: {self.refused}"
        if not self.pinned:
            return ""
        return f"prune: kept at full width, because the network breaks otherwise: {', '.join(self.pinned)}"


def probe(module: nn.Module, spec: ModelSpec, config: Config) -> Cuttable:
    """Try all cuts on copies, untrained: which layers cannot be cut. The network is left as it was."""
    try:
        with bounds.limited(module):
            layers = _widths_of(module, spec)
            if not layers:
                return Cuttable(refused=f"{spec.called} has no convolution, dense or LSTM layer before its outputs")
            error, _ = _tried(module, spec, config, ())
            if not error:
                return Cuttable()
            free = _working(module, spec, config, layers, [])
            pinned = tuple(name for name in layers if name not in free)
            rest, cut = _tried(module, spec, config, pinned)
            if cut and not rest:
                return Cuttable(pinned)
    except bounds.OutOfTime as late:
        error = str(late)
    return Cuttable(refused=f"{spec.called} breaks wherever it is cut ({error})")


def steps(
    module: nn.Module,
    spec: ModelSpec,
    config: Config,
    train: Split,
    found: Cuttable | None = None,
    note: Callable[[str], object] = print,
) -> Iterator[tuple[float, None]]:
    """Prune `module` in place, step by step; yield the share of channels aimed at, and nothing to keep up.

    The caller fine-tunes between steps, so importance is measured on tuned weights. Each step removes the same
    number of channels, from every layer alike or wherever in the network they matter least; the classifier's outputs
    are never touched. Nor is what a trial found that breaks the network; `found` is that trial's result, made here
    where it is missing. Where a step breaks the network all the same, `note` is told and there are no further steps.
    """
    found = probe(module, spec, config) if found is None else found
    if found.refused:
        return
    with prunable(spec), bounds.limited(module):
        pruner = _pruner(module, spec, config, found.pinned)
    for step in range(1, config.steps + 1):
        try:
            with prunable(spec):
                if config.importance == "taylor":
                    accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
                with bounds.limited(module):
                    pruner.step()
                module.zero_grad(set_to_none=True)
                check(module, spec)
        except (ModelError, bounds.OutOfTime) as error:
            note(f"prune: no step beyond {step - 1}: {error}")
            return
        yield config.ratio * step / config.steps, None


def check(module: nn.Module, spec: ModelSpec) -> None:
    """ModelError unless a cut network answers two samples, and answers the same when it was saved and loaded."""
    x = torch.cat([store.noise(spec)] * 2)
    module.eval()
    with torch.no_grad():
        expected = joined(module(x))
    with tempfile.TemporaryDirectory(prefix="edgekit-cut-") as folder:
        store.save(Path(folder), module, spec)
        loaded, _ = store.load(Path(folder))
    with torch.no_grad():
        found = joined(loaded(x))
    if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ModelError(f"{spec.called}: a cut copy answers otherwise when it is built again")


def _pruner(module: nn.Module, spec: ModelSpec, config: Config, pinned: Sequence[str]) -> Any:
    example = store.zeros(spec)
    pruner = torch_pruning.pruner.BasePruner(
        module,
        example,
        importance=MEASURES[config.importance](),
        global_pruning=config.scope == "global",
        pruning_ratio=config.ratio,
        max_pruning_ratio=config.max_layer_ratio,
        iterative_steps=config.steps,
        ignored_layers=[*fixed_layers(module, example), *(module.get_submodule(name) for name in pinned)],
        round_to=config.channel_multiple,
        **fresh_groups(),
    )
    if config.scope == "global":
        bound(pruner, config)
    return pruner


def fresh_groups() -> dict[str, dict[Any, Any]]:
    """Arguments whose default is one dict for all pruners, which would hold every network that was ever cut."""
    return {"in_channel_groups": {}, "out_channel_groups": {}, "num_heads": {}}


def _tried(module: nn.Module, spec: ModelSpec, config: Config, pinned: Sequence[str]) -> tuple[str, bool]:
    """Of a copy that all steps cut, except at the pinned layers: what is wrong with it, and whether it is smaller."""
    copied = copy.deepcopy(module)
    quick = config.model_copy(update={"importance": "l2" if config.importance == "taylor" else config.importance})
    try:
        with prunable(spec), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each pruner says the same of parameters outside layers
            pruner = _pruner(copied, spec, quick, pinned)
            for _ in range(config.steps):
                pruner.step()
                check(copied, spec)
    except ModelError as error:
        return _first_line(error.__cause__ or error), True
    return "", _size(copied) < _size(module)


def _size(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def _working(module: nn.Module, spec: ModelSpec, config: Config, layers: Sequence[str], free: list[str]) -> list[str]:
    """Of these layers those that can be cut together with the `free` ones: all of them, or those of each half."""
    everything = _widths_of(module, spec)
    pinned = [name for name in everything if name not in {*free, *layers}]
    if not _tried(module, spec, config, pinned)[0]:
        return [*free, *layers]
    if len(layers) == 1:
        return free
    half = len(layers) // 2
    return _working(module, spec, config, layers[half:], _working(module, spec, config, layers[:half], free))


def _widths_of(module: nn.Module, spec: ModelSpec) -> list[str]:
    """Names of the layers whose width a cut may change, in order."""
    fixed = {part for layer in fixed_layers(module, store.zeros(spec)) for part in layer.modules()}
    return [name for name, layer in module.named_modules() if isinstance(layer, CUT) and layer not in fixed]


@contextmanager
def prunable(spec: ModelSpec) -> Iterator[None]:
    """ModelError where the network's dependency graph cannot be followed, in place of what torch-pruning raises."""
    try:
        yield
    except (ModelError, bounds.OutOfTime):
        raise
    except Exception as error:  # torch-pruning and the cut network raise whatever they meet
        raise ModelError(
            f"prune: {spec.called} cannot be cut so ({type(error).__name__}: {_first_line(error)})"
        ) from error


def fixed_layers(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """Layers that keep their outputs: those of the network, and of attention what is parted into heads."""
    return [*output_layers(module, example), *_attention(module)]


def output_layers(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """The weighted layers that no other stands behind, on the way to an output: their channels are the outputs."""
    by_node: dict[Any, nn.Module] = {}
    weighted: tuple[type[Any], ...] = (nn.Linear, nn.modules.conv._ConvNd)
    hooks = [
        layer.register_forward_hook(lambda layer, _, result: by_node.update({result.grad_fn: layer}))
        for layer in module.modules()
        if isinstance(layer, weighted)
    ]
    try:
        with torch.enable_grad():
            ways = [joined(module(example)).grad_fn]
    finally:
        for hook in hooks:
            hook.remove()
    found, seen = [], set(ways)
    while ways:
        node = ways.pop()
        if node in by_node:
            found.append(by_node[node])
            continue
        behind = {after for after, _ in getattr(node, "next_functions", ()) if after is not None} - seen
        seen |= behind
        ways += behind
    return [layer for layer in module.modules() if layer in set(found)]


def _attention(module: nn.Module) -> list[nn.Module]:
    """Layers whose outputs are parted into heads: what stays of one would no longer fill them."""
    blocks = [part for part in module.modules() if isinstance(part, SelfAttention)]
    return [layer for block in blocks for layer in block.children()]


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]
