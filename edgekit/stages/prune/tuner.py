"""Fine-tuning in the prune stage, and what came of it on validation beside the baseline."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.config import TrainOptions
from edgekit.core.tasks import Answered
from edgekit.core.tasks.accuracy_drop import refusal
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.store import resize
from edgekit.stages.prune.config import Config
from edgekit.stages.prune.unstructured import measured_sparsity
from edgekit.training.fit import fit
from edgekit.training.objective import Distillation
from edgekit.training.predict import answered
from edgekit.training.resume import ResumeFolder

Step = dict[str, Any]


class Tuner:
    """Fine-tunes a copy's weights, as the student was trained that distill kept, and measures what came of it."""

    def __init__(
        self,
        baseline: nn.Module,
        distillation: Distillation | None,
        spec: store.ModelSpec,
        data: Data,
        config: Config,
        place: ResumeFolder,
    ) -> None:
        self.distillation, self.spec, self.data, self.config, self.place = distillation, spec, data, config, place
        self.baseline = self.answers(baseline)

    def tune(
        self,
        module: nn.Module,
        name: str,
        after_step: Callable[[nn.Module], None] | None = None,
        options: TrainOptions | None = None,
    ) -> None:
        """Train `module` in place, as the config says or by other `options`; `name` is the checkpoint's."""
        with progress.step("fine-tuning"):
            self.train(module, name, self.distillation, options or self.config, after_step)

    def train(
        self,
        module: nn.Module,
        name: str,
        distillation: Distillation | None,
        options: TrainOptions,
        after_step: Callable[[nn.Module], None] | None = None,
    ) -> None:
        """The same by any distillation; None: by labels alone."""
        config = self.config
        fit(
            module,
            self.data,
            self.spec.preprocess,
            options,
            seed=config.seed,
            device=config.device,
            threads=config.threads,
            training=config.training,
            distillation=distillation,
            resume=self.place.checkpoint(name),
            after_step=after_step,
        )

    def measure(self, module: nn.Module, step: int, aimed: float) -> Step:
        """A row of the record: accuracy, its drop below the baseline, and what a call costs."""
        module.cpu().eval()
        found = self.answers(module)
        budget = self.config.budget
        drop = tasks.drop(self.baseline, found, budget.accuracy_confidence)
        refused = refusal(drop, budget.accuracy_drop_pp)
        return {
            "step": step,
            "aimed": aimed,
            "validation_accuracy": tasks.accuracy(found),
            **dataclasses.asdict(drop),
            "inside_budget": refused is None,
            "reason": refused or "",
            "sparsity": measured_sparsity(module),
            **dataclasses.asdict(cost(module, self.spec.input_shape, self.spec.takes_ids)),
        }

    def answers(self, module: nn.Module) -> Answered:
        """To the samples of validation."""
        return answered(module, self.data.validation, self.spec.preprocess, self.data.task)


def fresh(spec: store.ModelSpec, pruned: nn.Module, seed: int) -> nn.Module:
    """The network of `pruned`'s shapes with the weights that its builder begins with.

    Each tensor is the first part of the builder's, weights made larger as fewer inputs ask for.

    What pruning keeps is worth its trouble where the same network, trained as long from the start, is not better.
    """
    module = store.build(spec, seed)
    whole = {name: value.clone() for name, value in module.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in pruned.state_dict().items()}
    resize(module, shapes)
    module.load_state_dict({name: _part(whole[name], shape) for name, shape in shapes.items()})
    store.dry_forward(module, spec)
    return module


def options_from_scratch(distilled: dict[str, Any], config: Config, tuned_steps: int) -> TrainOptions:
    """As the student was trained (`distilled`: the config of that stage), for as many epochs as both took together."""
    recipe = TrainOptions.model_validate(
        {name: value for name, value in distilled.items() if name in TrainOptions.model_fields}
    )
    together = recipe.epochs + tuned_steps * config.epochs
    return recipe.model_copy(update={"epochs": config.scratch_epochs or together})


def _part(whole: Tensor, shape: tuple[int, ...]) -> Tensor:
    part = whole[tuple(slice(size) for size in shape)].clone()
    if part.ndim < 2 or not part.is_floating_point():
        return part
    inputs, fewer = (tensor[0].numel() for tensor in (whole, part))
    return part * math.sqrt(inputs / fewer)
