"""Structured pruning: remove whole channels along the dependency graph (torch-pruning; Fang et al., 2023).

The importance of a channel is one of torch-pruning's measures: the norm of its weights over the whole group (l1, l2; Li
et al. 2017), the first-order change of the loss without it (Taylor; Molchanov et al. 2019), or its magnitude relative
to the rest of the layer (LAMP; Lee et al. 2021).
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
from edgekit.models.eager import eager_input, join_outputs, single_thread
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.models.store import ModelSpec
from edgekit.models.text_transformer import SelfAttention
from edgekit.stages.prune import torch_pruning_fixes
from edgekit.stages.prune.config import PruneConfig
from edgekit.training import losses

GRADIENT_BATCH = 64
"""Batch size for accumulating gradients."""
MEASURES: dict[str, Callable[[], Any]] = {
    "l1": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=1),
    "l2": lambda: torch_pruning.importance.GroupMagnitudeImportance(p=2),
    "taylor": torch_pruning.importance.GroupTaylorImportance,
    "lamp": torch_pruning.importance.LAMPImportance,
}


class BoundedImportance(torch_pruning.importance.Importance):
    """The scores of another importance measure, changed so that enough channels remain in every layer.

    `least` has, for the root layer of each group, the number of channels that must remain. That many channels, the most
    important ones, get an infinite score. If all scores of a group are zero, dividing them by their mean gives NaN;
    such scores are replaced by 0, so that the channels can be ranked.
    """

    def __init__(self, measure: Any, least: Mapping[nn.Module, int]) -> None:
        self.measure, self.least = measure, least

    def __call__(self, group: Any) -> Tensor | None:
        scores = self.measure(group)
        if scores is None:
            return None
        bounded_scores: Tensor = torch.nan_to_num(scores, nan=0.0)
        protected = min(self.least.get(group[0].dep.target.module, 0), len(bounded_scores))
        bounded_scores[torch.topk(bounded_scores, protected).indices] = torch.inf
        return bounded_scores


def limit_layer_ratio(pruner: Any, config: PruneConfig) -> None:
    """Keep every layer from losing more than `max_layer_ratio` of its channels when ranking is global.

    torch-pruning checks its own limit only before a step, so a single step may exceed it, and a layer that would lose
    all of its channels is not pruned at all.
    """
    channels = _root_channels(pruner)
    multiple = config.channel_multiple
    min_share = 1 - config.max_layer_ratio
    min_channels = {
        root: min(count, multiple * math.ceil(min_share * count / multiple - 1e-9)) for root, count in channels.items()
    }
    reachable = max(0.0, 1 - (sum(min_channels.values()) + 1e-6) / max(sum(channels.values()), 1))
    pruner.importance = BoundedImportance(pruner.importance, min_channels)
    pruner.per_step_pruning_ratio = [min(ratio, reachable) for ratio in pruner.per_step_pruning_ratio]


def accumulate_gradients(
    module: nn.Module, train: Split, preprocess: list[dict[str, Any]], samples: int, task: Task = "classification"
) -> None:
    """Accumulate in `module` the gradients of the task's mean loss over `samples` evenly spaced samples of `train`.

    The module is in eval mode and runs on one thread, batch by batch in order, so results are identical bit by bit.
    """
    chosen = train.take(np.unique(np.linspace(0, len(train) - 1, min(samples, len(train))).round().astype(np.int64)))
    loss, reconstructs = losses.label_loss(task), tasks.load_task(task).RECONSTRUCTS
    module.eval()
    module.zero_grad(set_to_none=True)
    with single_thread(), strided_pointwise_as_slices(module):
        for start in range(0, len(chosen), GRADIENT_BATCH):
            x = eager_input(chosen.x[start : start + GRADIENT_BATCH], preprocess)
            target = x if reconstructs else torch.tensor(chosen.y[start : start + GRADIENT_BATCH])
            (loss(join_outputs(module(x)), target) * (len(x) / len(chosen))).backward()


def _root_channels(pruner: Any) -> dict[nn.Module, int]:
    groups = pruner.DG.get_all_groups(ignored_layers=pruner.ignored_layers, root_module_types=pruner.root_module_types)
    roots = [group[0].dep.target.module for group in groups]
    return {root: pruner.DG.get_out_channels(root) for root in roots}


torch_pruning_fixes.install_corrections()
torch_pruning_fixes.install_limits()

PRUNABLE_TYPES: tuple[type[Any], ...] = (nn.Linear, nn.modules.conv._ConvNd, nn.LSTM)
"""Types of layers whose outputs can be pruned."""


@dataclass(frozen=True)
class ProbeResult:
    """Which layers can be pruned.

    `pinned` names the layers that keep their width, because the network breaks if they are pruned. `refused` says why
    nothing at all can be pruned; it is empty otherwise.
    """

    pinned: tuple[str, ...] = ()
    refused: str = ""

    def describe(self) -> str:
        """Return a line for the user; empty if every layer can be pruned."""
        if self.refused:
            return f"prune: no channels are removed: {self.refused}"
        if not self.pinned:
            return ""
        return f"prune: kept at full width, because the network breaks otherwise: {', '.join(self.pinned)}"


def probe(module: nn.Module, spec: ModelSpec, config: PruneConfig) -> ProbeResult:
    """Find out which layers cannot be pruned, by pruning copies without training. `module` is not changed."""
    try:
        with torch_pruning_fixes.search_limits(module):
            layers = _resizable_layers(module, spec)
            if not layers:
                return ProbeResult(refused=f"{spec.called} has no convolution, dense or LSTM layer before its outputs")
            error, _ = _dry_run(module, spec, config, ())
            if not error:
                return ProbeResult()
            prunable = _prunable_layers(module, spec, config, layers, [])
            pinned = tuple(name for name in layers if name not in prunable)
            remaining_error, is_smaller = _dry_run(module, spec, config, pinned)
            if is_smaller and not remaining_error:
                return ProbeResult(pinned)
    except torch_pruning_fixes.SearchTimeout as timeout:
        error = str(timeout)
    return ProbeResult(refused=f"{spec.called} breaks wherever it is cut ({error})")


def steps(
    module: nn.Module,
    spec: ModelSpec,
    config: PruneConfig,
    train: Split,
    probe_result: ProbeResult | None = None,
    note: Callable[[str], object] = print,
) -> Iterator[tuple[float, None]]:
    """Prune `module` in place, step by step.

    Yields the fraction of channels that each step aims to remove, and None, because there are no zeros to restore. The
    caller fine-tunes between steps, so importance is measured on tuned weights. Each step removes the same number of
    channels, evenly from all layers or (with `scope: global`) wherever they matter least. Output layers and the pinned
    layers of `probe_result` are never pruned; without a `probe_result`, `probe` is called first. If a step breaks the
    network nevertheless, `note` is called with the reason and the iteration ends.
    """
    probe_result = probe(module, spec, config) if probe_result is None else probe_result
    if probe_result.refused:
        return
    with pruning_errors(spec), torch_pruning_fixes.search_limits(module):
        pruner = _pruner(module, spec, config, probe_result.pinned)
    for step in range(1, config.steps + 1):
        try:
            with pruning_errors(spec):
                if config.importance == "taylor":
                    accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
                with torch_pruning_fixes.search_limits(module):
                    pruner.step()
                module.zero_grad(set_to_none=True)
                check_pruned_network(module, spec)
        except (ModelError, torch_pruning_fixes.SearchTimeout) as error:
            note(f"prune: no step beyond {step - 1}: {error}")
            return
        yield config.ratio * step / config.steps, None


def check_pruned_network(module: nn.Module, spec: ModelSpec) -> None:
    """Raise ModelError if a pruned network cannot predict a batch of two, or differs after saving and loading."""
    x = torch.cat([store.random_sample(spec)] * 2)
    module.eval()
    with torch.no_grad():
        expected = join_outputs(module(x))
    with tempfile.TemporaryDirectory(prefix="edgekit-cut-") as folder:
        store.save(Path(folder), module, spec)
        loaded, _ = store.load(Path(folder))
    with torch.no_grad():
        reloaded = join_outputs(loaded(x))
    if reloaded.shape != expected.shape or not torch.allclose(reloaded, expected, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ModelError(f"{spec.called}: a cut copy gives other outputs when it is built again")


def _pruner(module: nn.Module, spec: ModelSpec, config: PruneConfig, pinned: Sequence[str]) -> Any:
    example = store.zero_sample(spec)
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
        **empty_group_arguments(),
    )
    if config.scope == "global":
        limit_layer_ratio(pruner, config)
    return pruner


def empty_group_arguments() -> dict[str, dict[Any, Any]]:
    """Return new, empty dicts for some arguments of a pruner.

    The default dicts of torch-pruning are shared by all pruners, and would keep every pruned network in memory.
    """
    return {"in_channel_groups": {}, "out_channel_groups": {}, "num_heads": {}}


def _dry_run(module: nn.Module, spec: ModelSpec, config: PruneConfig, pinned: Sequence[str]) -> tuple[str, bool]:
    """Prune a copy of the network in all steps, but not its pinned layers.

    Returns the error as text, which is empty if there was none, and whether the copy became smaller.
    """
    copied = copy.deepcopy(module)
    quick = config.model_copy(update={"importance": "l2" if config.importance == "taylor" else config.importance})
    try:
        with pruning_errors(spec), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each pruner repeats its warning about parameters outside layers
            pruner = _pruner(copied, spec, quick, pinned)
            for _ in range(config.steps):
                pruner.step()
                check_pruned_network(copied, spec)
    except ModelError as error:
        return _first_line(error.__cause__ or error), True
    return "", _count_parameters(copied) < _count_parameters(module)


def _count_parameters(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())


def _prunable_layers(
    module: nn.Module, spec: ModelSpec, config: PruneConfig, layers: Sequence[str], known_prunable: list[str]
) -> list[str]:
    """Return `known_prunable` and those of `layers` that can be pruned together with them, found by bisection."""
    everything = _resizable_layers(module, spec)
    pinned = [name for name in everything if name not in {*known_prunable, *layers}]
    if not _dry_run(module, spec, config, pinned)[0]:
        return [*known_prunable, *layers]
    if len(layers) == 1:
        return known_prunable
    half = len(layers) // 2
    return _prunable_layers(
        module, spec, config, layers[half:], _prunable_layers(module, spec, config, layers[:half], known_prunable)
    )


def _resizable_layers(module: nn.Module, spec: ModelSpec) -> list[str]:
    """Return the names of the layers whose width may change, in order."""
    fixed = {part for layer in fixed_layers(module, store.zero_sample(spec)) for part in layer.modules()}
    return [name for name, layer in module.named_modules() if isinstance(layer, PRUNABLE_TYPES) and layer not in fixed]


@contextmanager
def pruning_errors(spec: ModelSpec) -> Iterator[None]:
    """Convert whatever torch-pruning or a broken network raises to ModelError."""
    try:
        yield
    except (ModelError, torch_pruning_fixes.SearchTimeout):
        raise
    except Exception as error:  # torch-pruning and the pruned network raise all kinds of exceptions
        raise ModelError(
            f"prune: {spec.called} cannot be cut in this way ({type(error).__name__}: {_first_line(error)})"
        ) from error


def fixed_layers(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """Return the layers whose width must not change: the output layers and those of attention blocks."""
    return [*output_layers(module, example), *_attention_layers(module)]


def output_layers(module: nn.Module, example: torch.Tensor) -> list[nn.Module]:
    """Return the layers that give the network's outputs: layers with weights that no other such layer follows."""
    by_node: dict[Any, nn.Module] = {}
    weighted: tuple[type[Any], ...] = (nn.Linear, nn.modules.conv._ConvNd)
    hooks = [
        layer.register_forward_hook(lambda layer, _, result: by_node.update({result.grad_fn: layer}))
        for layer in module.modules()
        if isinstance(layer, weighted)
    ]
    try:
        with torch.enable_grad():
            pending = [join_outputs(module(example)).grad_fn]
    finally:
        for hook in hooks:
            hook.remove()
    last_layers, seen = [], set(pending)
    while pending:
        node = pending.pop()
        if node in by_node:
            last_layers.append(by_node[node])
            continue
        upstream = {
            node_before for node_before, _ in getattr(node, "next_functions", ()) if node_before is not None
        } - seen
        seen |= upstream
        pending += upstream
    return [layer for layer in module.modules() if layer in set(last_layers)]


def _attention_layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers of attention blocks: their outputs are split into heads, which must keep their size."""
    blocks = [part for part in module.modules() if isinstance(part, SelfAttention)]
    return [layer for block in blocks for layer in block.children()]


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no message").splitlines()[0]


def group_widths(module: nn.Module, spec: ModelSpec, pinned: Sequence[str] = ()) -> dict[str, int]:
    """Return the number of channels of every group that may be pruned, by the name of its root layer.

    Groups that contain a `pinned` layer are left out. Raises ModelError if the dependency graph cannot be built.
    """
    with pruning_errors(spec), torch_pruning_fixes.search_limits(module):
        pruner = _group_pruner(module, spec, "l2", {}, pinned)
        names = {layer: name for name, layer in module.named_modules()}
        groups = pruner.DG.get_all_groups(
            ignored_layers=pruner.ignored_layers, root_module_types=pruner.root_module_types
        )
        roots = [group[0].dep.target.module for group in groups]
        return {names[root]: int(pruner.DG.get_out_channels(root)) for root in roots}


def narrower_widths(width: int, initial_width: int, config: PruneConfig) -> list[int]:
    """Return the widths to which a group of `width` channels may be cut, the widest first.

    They are multiples of `channel_multiple`, at most `widths_per_group` of them, and none removes more than
    `max_layer_ratio` of `initial_width`, the group's width in the student.
    """
    multiple = config.channel_multiple
    min_width = max(multiple, multiple * math.ceil((1 - config.max_layer_ratio) * initial_width / multiple - 1e-9))
    return list(range((width - 1) // multiple * multiple, min_width - 1, -multiple))[: config.widths_per_group]


def cut_group(
    module: nn.Module,
    spec: ModelSpec,
    config: PruneConfig,
    train: Split,
    group: str,
    width: int,
    pinned: Sequence[str] = (),
) -> None:
    """Reduce `group` to its `width` most important channels, in place.

    Raises ModelError if that breaks the network; `module` is unusable then.
    """
    with pruning_errors(spec):
        if config.importance == "taylor":
            accumulate_gradients(module, train, spec.preprocess, config.taylor_samples, spec.task)
        width_before = group_widths(module, spec, pinned)[group]
        share = 1 - (width + 0.5) / width_before  # keep half a channel more, because torch-pruning rounds down
        with torch_pruning_fixes.search_limits(module):
            _group_pruner(module, spec, config.importance, {module.get_submodule(group): share}, pinned).step()
        module.zero_grad(set_to_none=True)
        check_pruned_network(module, spec)


def _group_pruner(
    module: nn.Module, spec: ModelSpec, importance: str, shares: dict[nn.Module, float], pinned: Sequence[str]
) -> Any:
    example = store.zero_sample(spec)
    return torch_pruning.pruner.BasePruner(
        module,
        example,
        importance=MEASURES[importance](),
        pruning_ratio=0.0,
        pruning_ratio_dict=shares,
        ignored_layers=[*fixed_layers(module, example), *(module.get_submodule(name) for name in pinned)],
        **empty_group_arguments(),
    )
