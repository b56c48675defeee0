"""Fine-tune pruned networks and measure their accuracy drop on the validation split."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from edgekit.core import progress, tasks
from edgekit.core.config import TrainOptions
from edgekit.core.tasks import SampleResults
from edgekit.core.tasks.accuracy_drop import budget_violation
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.models.store import resize
from edgekit.stages.prune.config import PruneConfig
from edgekit.stages.prune.unstructured import measured_sparsity
from edgekit.training.fit import fit
from edgekit.training.objective import Distillation
from edgekit.training.predict import sample_scores
from edgekit.training.resume import ResumeFolder

Step = dict[str, Any]


class Tuner:
    """Fine-tunes networks as distill trained its student, and evaluates them against the baseline."""

    def __init__(
        self,
        baseline: nn.Module,
        distillation: Distillation | None,
        spec: store.ModelSpec,
        data: Data,
        config: PruneConfig,
        resume_folder: ResumeFolder,
    ) -> None:
        self.distillation, self.spec, self.data, self.config, self.resume_folder = (
            distillation,
            spec,
            data,
            config,
            resume_folder,
        )
        self.baseline = self.answers(baseline)

    def tune(
        self,
        module: nn.Module,
        name: str,
        after_step: Callable[[nn.Module], None] | None = None,
        options: TrainOptions | None = None,
    ) -> None:
        """Fine-tune `module` in place with the options of the config, or with `options`.

        `name` identifies the checkpoint. `after_step` is called after each optimizer update.
        """
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
        """Train `module` in place with `distillation`, or on the labels alone if it is None."""
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
            resume=self.resume_folder.checkpoint(name),
            after_step=after_step,
        )

    def measure(self, module: nn.Module, step: int, goal: float) -> Step:
        """Return the record of a step: accuracy, drop below the baseline, and the cost of a call."""
        module.cpu().eval()
        scores = self.answers(module)
        budget = self.config.budget
        drop = tasks.drop(self.baseline, scores, budget.accuracy_confidence)
        reason = budget_violation(drop, budget.accuracy_drop_pp)
        return {
            "step": step,
            "aimed": goal,
            "validation_accuracy": tasks.accuracy(scores),
            **dataclasses.asdict(drop),
            "inside_budget": reason is None,
            "reason": reason or "",
            "sparsity": measured_sparsity(module),
            **dataclasses.asdict(cost(module, self.spec.input_shape, self.spec.takes_ids)),
        }

    def answers(self, module: nn.Module) -> SampleResults:
        """Return the per-sample scores of `module` on the validation split."""
        return sample_scores(module, self.data.validation, self.spec.preprocess, self.data.task)


def untrained_pruned_network(spec: store.ModelSpec, pruned: nn.Module, seed: int) -> nn.Module:
    """Build a network with the shapes of `pruned` and the initial weights of its builder.

    Each tensor is the first part of the builder's tensor; weights are scaled up for the smaller fan-in. Training this
    network from scratch shows whether pruning was worthwhile (Liu et al., 2019).
    """
    module = store.build(spec, seed)
    full_size = {name: value.clone() for name, value in module.state_dict().items()}
    shapes = {name: tuple(value.shape) for name, value in pruned.state_dict().items()}
    resize(module, shapes)
    module.load_state_dict({name: _first_part(full_size[name], shape) for name, shape in shapes.items()})
    store.check_forward(module, spec)
    return module


def options_from_scratch(distill_config: dict[str, Any], config: PruneConfig, tuned_steps: int) -> TrainOptions:
    """Return the options for training a pruned shape from new weights.

    They are the options with which distill trained the student, read from its config `distill_config`, except for the
    number of epochs. This number is `scratch_epochs` or, if `scratch_epochs` is 0, the number of epochs that the
    student and its fine-tuning took together.
    """
    recipe = TrainOptions.model_validate(
        {name: value for name, value in distill_config.items() if name in TrainOptions.model_fields}
    )
    total_epochs = recipe.epochs + tuned_steps * config.epochs
    return recipe.model_copy(update={"epochs": config.scratch_epochs or total_epochs})


def _first_part(full: Tensor, shape: tuple[int, ...]) -> Tensor:
    part = full[tuple(slice(size) for size in shape)].clone()
    if part.ndim < 2 or not part.is_floating_point():
        return part
    full_fan_in, fan_in = (tensor[0].numel() for tensor in (full, part))
    return part * math.sqrt(full_fan_in / fan_in)
