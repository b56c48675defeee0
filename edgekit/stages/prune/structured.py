"""Structured pruning: whole channels, over the dependency graph of the network (torch-pruning; Fang et al., 2023).

How much each channel matters: torch-pruning's own measures, and what of every layer no measure may take.

Norms of a channel's weights over its whole group (l1, l2; Li et al. 2017), the first-order change of the loss without
it (Taylor; Molchanov et al. 2019), and magnitudes by their share of what is left of the layer (LAMP; Lee et al. 2021).
"""

from __future__ import annotations

import copy
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_pruning
from torch import Tensor, nn

from edgekit.core import tasks
from edgekit.core.errors import ModelError
from edgekit.core.tasks import Task
from edgekit.data import Split
from edgekit.models import store
from edgekit.models.eager import eager_input, joined, single_thread
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.models.store import ModelSpec
from edgekit.models.text_transformer import SelfAttention
from edgekit.stages.prune import torch_pruning_fixes
from edgekit.stages.prune.config import Config
from edgekit.training import losses

BATCH = 64
"""Samples whose gradients are added up at a time."""
MEASURES: dict[str, Callable[[], Any]] = {
    "l1": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=1),
    "l2": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=2),
    "taylor": torch_pruning.importance.GroupTaylorImportance,
    "lamp": torch_pruning.importance.LAMPImportance,
}


class Bounded(torch_pruning.importance.Importance):
    """The scores of another measure, the strongest `least` channels of each group's root layer out of reach.

    A group in which nothing matters scores nought: normalised by its mean, it would score nothing that can be ranked.
    """

    def __init__(self, measure: Any, least: Mapping[nn.Module, int]) -> None:
        self.measure, self.least = measure, least

    def __call__(self, group: Any) -> Tensor | None:
        scores = self.measure(group)
        if scores is None:
            return None
        bounded: Tensor = torch.nan_to_num(scores, nan=0.0)
        kept = min(self.least.get(group[0].dep.target.module, 0), len(bounded))
        bounded[torch.topk(bounded, kept).indices] = torch.inf
        return bounded


def bound(pruner: Any, config: Config) -> None:
    """Let no layer lose more than `max_layer_ratio` of its channels where they are ranked over the whole network.

    torch-pruning looks at its own limit before a step alone: a single one may take a layer beyond it, and a layer of
    which it would take everything is left whole.
    """
    channels = _root_channels(pruner)
    multiple = config.channel_multiple
    share = 1 - config.max_layer_ratio
    least = {
        root: min(count, multiple * math.ceil(share * count / multiple - 1e-9)) for root, count in channels.items()
    }
    reachable = max(0.0, 1 - (sum(least.values()) + 1e-6) / max(sum(channels.values()), 1))
    pruner.importance = Bounded(pruner.importance, least)
    pruner.per_step_pruning_ratio = [min(ratio, reachable) for ratio in pruner.per_step_pruning_ratio]


def accumulate_gradients(
    module: nn.Module, train: Split, preprocess: list[dict[str, Any]], samples: int, task: Task = "classification"
) -> None:
    """Leave in `module` the gradients of the task's mean loss on the labels, over `samples` evenly from `train`.

    In eval mode and on one thread, batch by batch in order: the same bits each time.
    """
    chosen = train.take(np.unique(np.linspace(0, len(train) - 1, min(samples, len(train))).round().astype(np.int64)))
    loss, reconstructs = losses.hard(task), tasks.named(task).RECONSTRUCTS
    module.eval()
    module.zero_grad(set_to_none=True)
    with single_thread(), strided_pointwise_as_slices(module):
        for start in range(0, len(chosen), BATCH):
            x = eager_input(chosen.x[start : start + BATCH], preprocess)
            wanted = x if reconstructs else torch.tensor(chosen.y[start : start + BATCH])
            (loss(joined(module(x)), wanted) * (len(x) / len(chosen))).backward()


def _root_channels(pruner: Any) -> dict[nn.Module, int]:
    groups = pruner.DG.get_all_groups(ignored_layers=pruner.ignored_layers, root_module_types=pruner.root_module_types)
    roots = [group[0].dep.target.module for group in groups]
    return {root: pruner.DG.get_out_channels(root) for root in roots}


torch_pruning_fixes.install_corrections()
torch_pruning_fixes.install_limits()

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
        with torch_pruning_fixes.limited(module):
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
    except torch_pruning_fixes.OutOfTime as late:
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
    with prunable(spec), torch_pruning_fixes.limited(module):
        pruner = _pruner(module, spec, config, found.pinned)
    for step in range(1, config.steps + 1):
        try:
            with prunable(spec):
                if config.importance == "taylor":
                    accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
                with torch_pruning_fixes.limited(module):
                    pruner.step()
                module.zero_grad(set_to_none=True)
                check(module, spec)
        except (ModelError, torch_pruning_fixes.OutOfTime) as error:
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
    except (ModelError, torch_pruning_fixes.OutOfTime):
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


def group_widths(module: nn.Module, spec: ModelSpec, pinned: Sequence[str] = ()) -> dict[str, int]:
    """Channels of every group that may be cut, by the name of the layer that it is found from; ModelError if unseen.

    Groups with a layer that is `pinned` may not.
    """
    with prunable(spec), torch_pruning_fixes.limited(module):
        pruner = _group_pruner(module, spec, "l2", {}, pinned)
        names = {layer: name for name, layer in module.named_modules()}
        groups = pruner.DG.get_all_groups(
            ignored_layers=pruner.ignored_layers, root_module_types=pruner.root_module_types
        )
        roots = [group[0].dep.target.module for group in groups]
        return {names[root]: int(pruner.DG.get_out_channels(root)) for root in roots}


def narrower(width: int, at_first: int, config: Config) -> list[int]:
    """The widths that a group of `width` channels may be cut to, widest first: multiples that the kernels like.

    No fewer channels stay than `max_layer_ratio` allows of the number `at_first`; at most `widths_per_group`.
    """
    multiple = config.channel_multiple
    least = max(multiple, multiple * math.ceil((1 - config.max_layer_ratio) * at_first / multiple - 1e-9))
    return list(range((width - 1) // multiple * multiple, least - 1, -multiple))[: config.widths_per_group]


def cut_group(
    module: nn.Module,
    spec: ModelSpec,
    config: Config,
    train: Split,
    group: str,
    width: int,
    pinned: Sequence[str] = (),
) -> None:
    """Leave the `width` channels of `group` that matter most to `config.importance`, in place.

    ModelError where that breaks the network, which is then of no use any more.
    """
    with prunable(spec):
        if config.importance == "taylor":
            accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
        before = group_widths(module, spec, pinned)[group]
        share = 1 - (width + 0.5) / before  # half a channel more: torch-pruning rounds down what stays
        with torch_pruning_fixes.limited(module):
            _group_pruner(module, spec, config.importance, {module.get_submodule(group): share}, pinned).step()
        module.zero_grad(set_to_none=True)
        check(module, spec)


def _group_pruner(
    module: nn.Module, spec: ModelSpec, importance: str, shares: dict[nn.Module, float], pinned: Sequence[str]
) -> Any:
    example = store.zeros(spec)
    return torch_pruning.pruner.BasePruner(
        module,
        example,
        importance=MEASURES[importance](),
        pruning_ratio=0.0,
        pruning_ratio_dict=shares,
        ignored_layers=[*fixed_layers(module, example), *(module.get_submodule(name) for name in pinned)],
        **fresh_groups(),
    )
