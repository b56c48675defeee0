"""The one training loop: hard labels or a teacher's soft ones, seeded; the best validation weights win."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from edgekit.core import progress, tasks
from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.errors import ModelError
from edgekit.core.precision import resolved
from edgekit.models import memory_layout
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.runner.preprocess.transform import apply
from edgekit.training import batches, checkpoint, losses, torch_settings
from edgekit.training.batches import made_in_a_thread
from edgekit.training.checkpoint import Checkpoint, MovingAverage
from edgekit.training.objective import Distillation, LabelObjective, objective
from edgekit.training.predict import EVALUATION_BATCH, Inputs, Steps, on, pick_device, scores_of, to_input
from edgekit.training.shares.division import threads_of_a_share
from edgekit.training.shares.sharing import check_positives, sharing
from edgekit.training.shares.team import Team
from edgekit.training.torch_settings import computing_in, reproducible

if TYPE_CHECKING:
    from edgekit.data import Data


def learning_rate_at(step: int, total: int, schedule: str = "cosine", warmup_share: float = 0.1) -> float:
    """Factor of the peak rate at a step: linear over the warm-up's share, then half a cosine or a line down to zero.

    `constant` stays at the peak.

    Warm-up: Goyal et al. 2017, "Accurate, Large Minibatch SGD". Cosine: Loshchilov & Hutter, "SGDR: Stochastic Gradient
    Descent with Warm Restarts", ICLR 2017, without restarts.
    """
    warm = max(1, round(total * warmup_share))
    if step < warm:
        return (step + 1) / warm
    done = (step - warm) / max(1, total - warm)
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1 - done
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


ALONE = TrainingOptions.model_validate({})
MOMENTUM, SETTLED_RATE = 0.9, 0.2


@dataclass(frozen=True)
class EpochResult:
    """One pass over the train split; `epoch` counts from 1, accuracy is a fraction."""

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    learning_rate: float


AfterStep = Callable[[nn.Module], None] | None
OnEpoch = Callable[[EpochResult], None] | None


@dataclass(frozen=True)
class History:
    """Every epoch that ran, in order; the module was left with the weights of `best`."""

    epochs: tuple[EpochResult, ...]
    best: EpochResult


def fit(
    module: nn.Module,
    data: Data,
    preprocess: Steps,
    options: TrainOptions,
    *,
    seed: int,
    device: str = "auto",
    threads: int = 0,
    training: TrainingOptions = ALONE,
    distillation: Distillation | None = None,
    resume: Checkpoint | None = None,
    until: int | None = None,
    after_step: AfterStep = None,
    on_epoch: OnEpoch = None,
) -> History:
    """Train `module` in place: SGD with Nesterov momentum, linear warm-up, cosine decay or another `schedule`.

    It ends on the CPU, in eval mode, with the weights of the best epoch: highest validation accuracy, of equals the
    lowest validation loss. Without early stopping only epochs that began below a fifth of the peak rate compete, if
    there are any. A high score at a high rate is luck, and costs accuracy on fresh samples. With `ema_decay` it is the
    average of the weights that is validated and left. A teacher sees the same augmented batches.

    `after_step(module)` runs after every optimiser step, `on_epoch(result)` after every epoch. With `resume` the state
    is saved after each epoch, and a training that was stopped resumes from there to the same bits. Then `on_epoch` is
    called for the new epochs only. It stops after `until` epochs, where that is fewer. With `training.shares` above 1
    the bits are others, and those of any number of processes: see `edgekit.training.shares`. So are they with another
    `training.precision`: see `edgekit.training.torch_settings`.
    """
    if len(data.train.y) < 2 or not len(data.validation.y):
        raise ModelError(
            f"training needs 2 train samples and 1 validation sample, got {len(data.train.y)} and "
            f"{len(data.validation.y)}; raise data.limit"
        )
    if data.task == "embedding" and distillation is None:
        check_positives(data.train.y, options.batch_size, training.shares)
    where = pick_device(device)
    networks = [
        module,
        *([distillation.teacher] if distillation and isinstance(distillation.teacher, nn.Module) else []),
    ]
    shares, precision = training.shares, resolved(training, where.type).precision
    example_made = apply(preprocess, data.train.x[:1])
    home = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    memory_layout.detect_for_training(module, on(home, example_made))
    with (
        torch_settings.keep_freed_memory(),
        reproducible(where, seed, threads_of_a_share(threads, shares) if shares > 1 else threads),
        sharing(shares, module, distillation, data.task, example_made, where, seed, precision) as team_of,
        strided_pointwise_as_slices(module),
        computing_in(precision, module, where),
    ):
        for network in networks:
            memory_layout.apply(network.to(where), memory_layout.of(network))
        example = on(where, example_made)
        try:
            with objective(
                distillation, module, data, preprocess, options, example,
                seed=seed, threads=threads or os.cpu_count() or 1, shares=shares,
            ) as aim:  # fmt: skip
                loop = _Loop(module, data, preprocess, options, aim, where, seed, resume, team_of(aim))
                return loop.run(after_step, on_epoch, until or options.epochs)
        finally:
            for network in networks:
                # back to contiguous: kernels for another layout differ in the last bits from a loaded copy's
                network.to("cpu").to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]


class _Loop:
    """The state of one training: the optimiser, its schedule, and the generator of orders and augmentations."""

    def __init__(
        self,
        module: nn.Module,
        data: Data,
        preprocess: Steps,
        options: TrainOptions,
        aim: LabelObjective,
        device: torch.device,
        seed: int,
        resume: Checkpoint | None,
        team: Team | None,
    ) -> None:
        self.module, self.data, self.preprocess, self.options = module, data, preprocess, options
        self.aim, self.device, self.resume, self.team = aim, device, resume, team
        self.random = np.random.default_rng(seed)
        self.batches = batches.Prepared(data, options, preprocess)
        self.validation = Inputs(data.validation.x, preprocess)
        trained = nn.ModuleList([module, *([aim.beside] if aim.beside else [])])
        groups = _groups(trained, options.weight_decay)
        # `foreach` gives the bits of one parameter after the other; `fused` rounds in other places
        self.optimiser = torch.optim.SGD(groups, options.learning_rate, MOMENTUM, nesterov=True, foreach=True)
        self.steps_per_epoch = len(batches.parts(len(data.train.y), options.batch_size))
        self.total_steps = self.steps_per_epoch * options.epochs
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self._rate_at)
        self.average = MovingAverage(module, options.ema_decay) if options.ema_decay else None
        self.results: list[EpochResult] = []
        self.best: EpochResult | None = None
        self.kept = copy.deepcopy(module.state_dict())

    def run(self, after_step: AfterStep, on_epoch: OnEpoch, until: int) -> History:
        self._restore()
        with progress.step("", "epoch", self.options.epochs, len(self.results)) as shown:
            while len(self.results) < until and not self._finished():
                epoch, rate = len(self.results) + 1, self.optimiser.param_groups[0]["lr"]
                loss = self._epoch(epoch, after_step, shown)
                with self.average.inside(self.module) if self.average else nullcontext():
                    if self.average and after_step is not None:
                        after_step(self.module)  # an average of zeros is no zero where a weight once was
                    result = self._record(EpochResult(epoch, loss, *self._validate(), rate))
                self._keep()
                shown.at(epoch, best=f"{max(each.validation_accuracy for each in self.results):.2%}")
                if on_epoch is not None:
                    on_epoch(result)
        assert self.best is not None
        self.module.load_state_dict(self.kept)
        return History(tuple(self.results), self.best)

    def _record(self, result: EpochResult) -> EpochResult:
        """Keep the weights that it belongs to, where it is the best so far."""
        self.results.append(result)
        if self.best is None or self._rank(result) > self._rank(self.best):
            self.best, self.kept = result, copy.deepcopy(self.module.state_dict())
        return result

    def _finished(self) -> bool:
        done, patience = len(self.results), self.options.patience_epochs
        since = done - self.best.epoch if self.best else 0
        return done == self.options.epochs or bool(patience and since >= patience)

    def _keep(self) -> None:
        """All that the next epoch depends on, so that it can be made in another process."""
        if self.resume is None or self.best is None:
            return
        facts = {
            "epochs": [asdict(result) for result in self.results],
            "best": self.best.epoch,
            "random": self.random.bit_generator.state,
            "rates": [group["lr"] for group in self.optimiser.param_groups],
        }
        tensors = checkpoint.tensors_of(self.module, self.kept, self.optimiser, self.aim.beside, self.average)
        self.resume.save(tensors, facts)

    def _restore(self) -> None:
        """Put back what `_keep` kept, if that is there."""
        found = self.resume.load() if self.resume else None
        if self.resume is None or found is None:
            return
        tensors, facts = found
        self.kept = checkpoint.put_back(tensors, self.module, self.optimiser, self.aim.beside, self.average)
        for group, rate in zip(self.optimiser.param_groups, facts["rates"], strict=True):
            group["lr"] = rate
        self.results = [EpochResult(**row) for row in facts["epochs"]]
        self.best = self.results[facts["best"] - 1]
        self.schedule.last_epoch = len(self.results) * self.steps_per_epoch
        self.random.bit_generator.state = facts["random"]
        how = "was finished" if self._finished() else "goes on"
        print(f"{self.resume.path.stem}: {how} after {len(self.results)} of {self.options.epochs} epochs")

    def _rank(self, result: EpochResult) -> tuple[bool, float, float]:
        ends_at = self.options.learning_rate * self._rate_at(result.epoch * self.steps_per_epoch)
        settled = max(result.learning_rate, ends_at) <= SETTLED_RATE * self.options.learning_rate
        return settled and not self.options.patience_epochs, result.validation_accuracy, -result.validation_loss

    def _rate_at(self, step: int) -> float:
        return learning_rate_at(step, self.total_steps, self.options.schedule, self.options.warmup_share)

    def _epoch(self, epoch: int, after_step: AfterStep, shown: progress.Step) -> float:
        self.module.train()
        total = torch.zeros((), device=self.device)
        self.aim.begin(epoch, self.random)
        with closing(made_in_a_thread(self.batches.epoch(self.random))) as coming:
            for number, (made, labels) in enumerate(coming):
                shown.at(epoch - 1 + number / self.steps_per_epoch)
                loss = self._gradient(made, labels)
                self.optimiser.step()
                self.schedule.step()
                if after_step is not None:
                    after_step(self.module)
                if self.average is not None:
                    self.average.update(self.module, self.schedule.last_epoch)
                total += loss
        self.aim.end()
        mean = float(total) / self.steps_per_epoch
        if not math.isfinite(mean):
            raise ModelError(
                f"epoch {epoch}: the loss is {mean}; lower learning_rate ({self.options.learning_rate}), or look for "
                "wild values in the samples or a missing scale step in preprocess"
            )
        return mean

    def _gradient(self, made: np.ndarray, labels: np.ndarray) -> torch.Tensor:
        """Leave the gradient of a batch of inputs in the parameters; its loss."""
        if self.team is not None:
            return self.team.gradient(made, labels, self.schedule.last_epoch)
        x, y = on(self.device, made), torch.from_numpy(labels).to(self.device)
        loss = self.aim.loss(self.module, x, y)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach()

    def _validate(self) -> tuple[float, float]:
        split, task = self.data.validation, tasks.named(self.data.task)
        scores = scores_of(self.module, self.validation, self.device, EVALUATION_BATCH)
        wanted = to_input(self.validation.all()) if task.RECONSTRUCTS else split.y
        accuracy = tasks.accuracy(task.score_samples(scores, wanted, split.y))
        if task.RECONSTRUCTS:  # an anomaly that is reconstructed well is no success
            scores, wanted = scores[split.y == 0], wanted[split.y == 0]
        loss = losses.hard(self.data.task)(torch.from_numpy(scores), torch.from_numpy(np.array(wanted)))
        return float(loss), accuracy


def _groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    weights = [parameter for parameter in trained if parameter.ndim > 1]
    others = [parameter for parameter in trained if parameter.ndim <= 1]
    groups = [{"params": weights, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]
