"""The training loop, with labels alone or with a teacher. It is seeded, and keeps the weights of the best epoch."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from edgekit.core import progress, tasks
from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.precision import resolve_precision
from edgekit.core.pretrained import Pretrained
from edgekit.models import memory_layout
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.runner.preprocess.transform import apply
from edgekit.training import batches, checkpoint, losses, optimizers, torch_settings
from edgekit.training.accumulation import MeanGradient
from edgekit.training.batches import prepare_in_thread
from edgekit.training.checkpoint import Checkpoint, MovingAverage
from edgekit.training.data_parallel.coordinator import ShardCoordinator
from edgekit.training.data_parallel.division import threads_per_shard
from edgekit.training.data_parallel.session import check_positives, open_coordinator
from edgekit.training.objective import Distillation, LabelObjective, objective
from edgekit.training.predict import EVALUATION_BATCH, Inputs, Steps, move, outputs_of, pick_device, to_device, to_input
from edgekit.training.torch_settings import computing_in, reproducible
from edgekit.training.transfer import Backbone

if TYPE_CHECKING:
    from edgekit.data import Data


def learning_rate_at(step: int, total: int, schedule: str = "cosine", warmup_share: float = 0.1) -> float:
    """Return the learning rate at a step as a fraction of the peak rate.

    It rises linearly during the warm-up (Goyal et al. 2017, "Accurate, Large Minibatch SGD"). Then it falls to zero
    along half a cosine (Loshchilov & Hutter, "SGDR", ICLR 2017, without restarts) or a line, or stays `constant`.
    """
    warmup_steps = max(1, round(total * warmup_share))
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    progress_share = (step - warmup_steps) / max(1, total - warmup_steps)
    if schedule == "constant":
        return 1.0
    if schedule == "linear":
        return 1 - progress_share
    return 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / max(1, total - warmup_steps)))


ONE_PROCESS = TrainingOptions.model_validate({})
LOW_RATE = 0.2


@dataclass(frozen=True)
class EpochResult:
    """The result of one pass over the train split. `epoch` counts from 1, and accuracy is a fraction."""

    epoch: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float
    learning_rate: float


AfterStep = Callable[[nn.Module], None] | None
OnEpoch = Callable[[EpochResult], None] | None


@dataclass(frozen=True)
class History:
    """All epochs in order. The trained module has the weights of `best`."""

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
    training: TrainingOptions = ONE_PROCESS,
    pretrained: Pretrained | None = None,
    distillation: Distillation | None = None,
    resume: Checkpoint | None = None,
    stop_epoch: int | None = None,
    after_step: AfterStep = None,
    on_epoch: OnEpoch = None,
) -> History:
    """Train `module` in place with an optimizer, a linear warm-up of its rate and cosine decay or another `schedule`.

    The module ends on the CPU, in eval mode, with the weights of the best epoch. This is the epoch with the highest
    validation accuracy or, if several have the same accuracy, the one of these with the lowest validation loss. Without
    early stopping, only epochs with a learning rate below a fifth of the peak are considered, if there are any, because
    a high score at a high rate is luck, and keeping such an epoch costs accuracy on new samples. With `ema_decay`, the
    average of the weights is validated and kept. A teacher sees the same augmented batches as the student.

    The weights differ in the last bits between values of `training.shares`, but they do not depend on the number of
    processes (see `edgekit.training.data_parallel`). They also differ between values of `training.precision`.

    Parameters
    ----------
    module : torch.nn.Module
        The network to train.
    data : Data
        The data of the run; the splits train and validation are used.
    preprocess : list of dict
        The steps from raw samples to network inputs.
    options : TrainOptions
        Epochs, learning rate, augmentation and so on.
    seed : int
        Determines the order of the samples and their augmentation.
    device : str
        `auto`, `cpu`, `cuda` or `mps`.
    threads : int
        Number of threads; 0 means all cores.
    training : TrainingOptions
        Number of processes and precision.
    pretrained : Pretrained, optional
        How the backbone is trained, if the network starts from trained weights.
    distillation : Distillation, optional
        A teacher and a loss; None trains with the labels alone.
    resume : Checkpoint, optional
        The checkpoint to which the state is saved after each epoch. An interrupted training continues from it and ends
        with exactly the same weights.
    stop_epoch : int, optional
        Stop after this epoch; a later call with the same `resume` continues.
    after_step : callable, optional
        Called with the module after every optimizer step.
    on_epoch : callable, optional
        Called with the result of every new epoch.

    Raises
    ------
    ConfigError
        The optimizer does not take its options, the labels of the task cannot be smoothed, or a backbone is to be
        frozen while `training.shares` divides the batches.
    ModelError
        There are too few samples, the device is not available, or the loss is not finite.
    """
    if pretrained and training.shares > 1 and (pretrained.freeze_epochs or pretrained.freeze_norms):
        raise ConfigError(
            "pretrained and training.shares disagree: a frozen backbone is trained in one process; set training.shares "
            "to 1, or leave freeze_epochs and freeze_norms out"
        )
    optimizers.check(options)
    losses.check_label_smoothing(options.label_smoothing, data.task)
    if len(data.train.y) < 2 or not len(data.validation.y):
        raise ModelError(
            f"training needs 2 train samples and 1 validation sample, got {len(data.train.y)} and "
            f"{len(data.validation.y)}; raise data.limit"
        )
    if data.task == "embedding" and distillation is None:
        check_positives(data.train.y, options.batch_size, training.shares)
    torch_device = pick_device(device)
    networks = [
        module,
        *([distillation.teacher] if distillation and isinstance(distillation.teacher, nn.Module) else []),
    ]
    shards, precision = training.shares, resolve_precision(training, torch_device.type).precision
    prepared_example = apply(preprocess, data.train.x[:1])
    current_device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    memory_layout.detect_for_training(module, to_device(current_device, prepared_example))
    with (
        torch_settings.keep_freed_memory(),
        reproducible(torch_device, seed, threads_per_shard(threads, shards) if shards > 1 else threads),
        open_coordinator(
            shards,
            module,
            distillation,
            data.task,
            prepared_example,
            torch_device,
            seed,
            precision,
            options.label_smoothing,
        ) as make_coordinator,
        strided_pointwise_as_slices(module),
        computing_in(precision, module, torch_device),
    ):
        for network in networks:
            memory_layout.apply_layout(network.to(torch_device), memory_layout.layout_of(network))
        example = to_device(torch_device, prepared_example)
        try:
            with objective(
                distillation, module, data, preprocess, options, example,
                seed=seed, threads=threads or os.cpu_count() or 1, shards=shards,
            ) as training_objective:  # fmt: skip
                loop = _Loop(
                    module,
                    data,
                    preprocess,
                    options,
                    training_objective,
                    torch_device,
                    seed,
                    resume,
                    make_coordinator(training_objective),
                    Backbone(module, pretrained) if pretrained else None,
                )
                return loop.run(after_step, on_epoch, stop_epoch or options.epochs)
        finally:
            for network in networks:
                # with another memory layout, the last bits would differ from those of a loaded copy of the network
                network.to("cpu").to(memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]


class _Loop:
    """The state of a training run: the optimizer, its schedule, and the random generator for the order of the samples
    and for augmentations."""

    def __init__(
        self,
        module: nn.Module,
        data: Data,
        preprocess: Steps,
        options: TrainOptions,
        training_objective: LabelObjective,
        device: torch.device,
        seed: int,
        resume: Checkpoint | None,
        coordinator: ShardCoordinator | None,
        backbone: Backbone | None,
    ) -> None:
        self.module, self.data, self.preprocess, self.options = module, data, preprocess, options
        self.objective, self.device, self.resume, self.coordinator = training_objective, device, resume, coordinator
        self.backbone = backbone
        self.random = np.random.default_rng(seed)
        self.batches = batches.BatchPreparer(data, options, preprocess)
        self.validation = Inputs(data.validation.x, preprocess)
        trained_modules = nn.ModuleList([module, *([training_objective.beside] if training_objective.beside else [])])
        self.optimiser = optimizers.build(trained_modules, options, backbone)
        self.parameters = [each for group in self.optimiser.param_groups for each in group["params"]]
        self.accumulated = MeanGradient(self.parameters) if options.accumulate_batches > 1 else None
        self.batches_per_epoch = len(batches.batch_slices(len(data.train.y), options.batch_size))
        self.steps_per_epoch = math.ceil(self.batches_per_epoch / options.accumulate_batches)
        self.total_steps = self.steps_per_epoch * options.epochs
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimiser, self._rate_at)
        self.average = MovingAverage(module, options.ema_decay) if options.ema_decay else None
        self.results: list[EpochResult] = []
        self.best: EpochResult | None = None
        self.best_state = copy.deepcopy(module.state_dict())

    def run(self, after_step: AfterStep, on_epoch: OnEpoch, stop_epoch: int) -> History:
        self._restore()
        with progress.step("", "epoch", self.options.epochs, len(self.results)) as bar:
            while len(self.results) < stop_epoch and not self._is_finished():
                epoch, rate = len(self.results) + 1, self._learning_rate(self.schedule.last_epoch)
                loss = self._epoch(epoch, after_step, bar)
                with self.average.inside(self.module) if self.average else nullcontext():
                    if self.average and after_step is not None:
                        # sets pruned weights to zero again, because their averages may be different from zero
                        after_step(self.module)
                    result = self._record(EpochResult(epoch, loss, *self._validate(), rate))
                self._save_state()
                bar.update(epoch, best=f"{max(each.validation_accuracy for each in self.results):.2%}")
                if on_epoch is not None:
                    on_epoch(result)
        if self.backbone:
            self.backbone.end()
        assert self.best is not None
        self.module.load_state_dict(self.best_state)
        return History(tuple(self.results), self.best)

    def _record(self, result: EpochResult) -> EpochResult:
        """Add the result of an epoch, and keep the current weights if it is the best so far."""
        self.results.append(result)
        if self.best is None or self._rank(result) > self._rank(self.best):
            self.best, self.best_state = result, copy.deepcopy(self.module.state_dict())
        return result

    def _is_finished(self) -> bool:
        epochs, patience = len(self.results), self.options.patience_epochs
        epochs_since_best = epochs - self.best.epoch if self.best else 0
        return epochs == self.options.epochs or bool(patience and epochs_since_best >= patience)

    def _save_state(self) -> None:
        """Save everything on which the next epoch depends, so that another process can continue."""
        if self.resume is None or self.best is None:
            return
        facts = {
            "epochs": [asdict(result) for result in self.results],
            "best": self.best.epoch,
            "random": self.random.bit_generator.state,
            "rates": [group["lr"] for group in self.optimiser.param_groups],
        }
        tensors = checkpoint.collect_tensors(
            self.module, self.best_state, self.optimiser, self.objective.beside, self.average
        )
        self.resume.save(tensors, facts)

    def _restore(self) -> None:
        """Restore the saved state, if there is one."""
        saved = self.resume.load() if self.resume else None
        if self.resume is None or saved is None:
            return
        tensors, facts = saved
        self.best_state = checkpoint.restore_tensors(
            tensors, self.module, self.optimiser, self.objective.beside, self.average
        )
        for group, rate in zip(self.optimiser.param_groups, facts["rates"], strict=True):
            group["lr"] = rate
        self.results = [EpochResult(**row) for row in facts["epochs"]]
        self.best = self.results[facts["best"] - 1]
        self.schedule.last_epoch = len(self.results) * self.steps_per_epoch
        self.random.bit_generator.state = facts["random"]
        status = "had finished" if self._is_finished() else "continues"
        print(f"{self.resume.path.stem}: {status} after {len(self.results)} of {self.options.epochs} epochs")

    def _rank(self, result: EpochResult) -> tuple[bool, float, float]:
        final_rate = self._learning_rate(result.epoch * self.steps_per_epoch)
        is_low_rate = max(result.learning_rate, final_rate) <= LOW_RATE * self.options.learning_rate
        return is_low_rate and not self.options.patience_epochs, result.validation_accuracy, -result.validation_loss

    def _learning_rate(self, step: int) -> float:
        return self.options.learning_rate * self._rate_at(step)

    def _rate_at(self, step: int) -> float:
        return learning_rate_at(step, self.total_steps, self.options.schedule, self.options.warmup_share)

    def _epoch(self, epoch: int, after_step: AfterStep, bar: progress.Step) -> float:
        self.module.train()
        if self.backbone:
            self.backbone.begin_epoch(epoch)
        total = torch.zeros((), device=self.device)
        self.objective.begin(epoch, self.random)
        batches_before = (epoch - 1) * self.batches_per_epoch
        with closing(prepare_in_thread(self.batches.epoch(self.random))) as prepared:
            for number, (inputs, labels) in enumerate(prepared):
                bar.update(epoch - 1 + number / self.batches_per_epoch)
                total += self._gradient(inputs, labels, batches_before + number)
                if self.accumulated is not None:
                    self.accumulated.add(len(labels))
                if (number + 1) % self.options.accumulate_batches == 0 or number + 1 == self.batches_per_epoch:
                    self._step(after_step)
        self.objective.end()
        mean = float(total) / self.batches_per_epoch
        if not math.isfinite(mean):
            raise ModelError(
                f"epoch {epoch}: the loss is {mean}; lower learning_rate ({self.options.learning_rate}), or look for "
                "extreme values in the samples or a missing scale step in preprocess"
            )
        return mean

    def _gradient(self, inputs: np.ndarray, labels: np.ndarray, number: int) -> torch.Tensor:
        """Compute the gradient of a batch, the `number`th of the training, and return its loss."""
        if self.coordinator is not None:
            return self.coordinator.gradient(inputs, labels, number)
        x, y = to_device(self.device, inputs), move(torch.from_numpy(labels), self.device)
        loss = self.objective.loss(self.module, x, y)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        return loss.detach()

    def _step(self, after_step: AfterStep) -> None:
        """Change the weights by the gradient of the last batch, or by the mean of those that were accumulated."""
        if self.accumulated is not None:
            self.accumulated.store()
        if self.options.clip_norm:
            nn.utils.clip_grad_norm_(self.parameters, self.options.clip_norm)
        self.optimiser.step()
        self.schedule.step()
        if after_step is not None:
            after_step(self.module)
        if self.average is not None:
            self.average.update(self.module, self.schedule.last_epoch)

    def _validate(self) -> tuple[float, float]:
        split, task = self.data.validation, tasks.load_task(self.data.task)
        scores = outputs_of(self.module, self.validation, self.device, EVALUATION_BATCH)
        expected = to_input(self.validation.all()) if task.RECONSTRUCTS else split.y
        accuracy = tasks.accuracy(task.score_samples(scores, expected, split.y))
        if task.RECONSTRUCTS:  # a low error on an anomaly would be no success, so only normal samples count
            scores, expected = scores[split.y == 0], expected[split.y == 0]
        loss = losses.label_loss(self.data.task)(torch.from_numpy(scores), torch.from_numpy(np.array(expected)))
        return float(loss), accuracy
