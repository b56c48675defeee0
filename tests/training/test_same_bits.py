"""`fit` gives the bits of the plain loop that is written out here: what makes it faster changes none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.core.config import TrainOptions
from edgekit.data import Data, Split
from edgekit.models.autoencoder import autoencoder
from edgekit.models.conv1d import conv1d
from edgekit.models.detector import detector
from edgekit.models.ds_cnn import ds_cnn
from edgekit.models.eager import join_outputs
from edgekit.models.memory_layout import strided_pointwise_as_slices
from edgekit.models.resnet import resnet8
from edgekit.models.segmenter import segmenter
from edgekit.runner.preprocess.transform import apply
from edgekit.training import batches, losses, predict
from edgekit.training.fit import fit, learning_rate_at
from tests.core.tasks.test_detection import labels as boxes

SCALE = [{"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": [0.4], "std": [0.3]}]
LOG_MEL = [
    {
        "step": "log_mel", "rate_hz": 8000, "window_samples": 200, "hop_samples": 150, "fft_samples": 256,
        "mels": 10, "low_hz": 20.0, "high_hz": 4000.0, "floor": 1e-6,
    }
]  # fmt: skip
COUNT, EPOCHS, SEED = 41, 2, 3
PICTURE = (32, 32, 1)


def data_of(task: str, kind: str, x: np.ndarray, y: np.ndarray) -> Data:
    split = Split(x, y)
    return Data(split, split, split.take(np.arange(10)), ("a", "b", "c"), kind, "0" * 64, task=task)  # type: ignore[arg-type]


def pictures(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.integers(0, 256, (COUNT, *shape)).astype(np.uint8)


def case(name: str) -> tuple[Data, list[dict], Callable[[], nn.Module], str]:
    random = np.random.default_rng(SEED)
    y = np.arange(COUNT) % 3
    if name in ("pictures", "pictures as they are"):
        data = data_of("classification", "image", pictures(random, *PICTURE), y)
        # width 12: its strided 1x1 convolutions are those that edgekit.models.memory_layout changes
        return data, SCALE, lambda: resnet8((1, 32, 32), 3, width=12), "shift_flip" if name == "pictures" else "none"
    if name == "sounds":
        x = random.uniform(-0.5, 0.5, (COUNT, 4000)).astype(np.float32)
        return data_of("classification", "audio", x, y), LOG_MEL, lambda: ds_cnn((1, 26, 10), 3, 8, 2), "shift"
    if name == "windows":
        x = random.normal(size=(COUNT, 24, 2)).astype(np.float32)
        return data_of("classification", "window", x, y), [], lambda: conv1d((24, 2), 3, width=4, blocks=2), "shift"
    if name == "vectors":
        x = random.normal(size=(COUNT, 6)).astype(np.float32)
        data = data_of("anomaly", "vector", x, np.zeros(COUNT, np.int64))
        return data, [{"step": "scale", "factor": 0.5}], lambda: autoencoder((6,), width=16, bottleneck=2), "none"
    if name == "masks":
        data = data_of("segmentation", "image", pictures(random, *PICTURE), pictures(random, 32, 32) % 3)
        return data, SCALE, lambda: segmenter((1, 32, 32), 3, width=4), "shift_flip"
    data = data_of("detection", "image", pictures(random, 64, 96, 1), boxes(COUNT, SEED))
    return data, SCALE, lambda: detector((1, 64, 96), 3, width=4, depth=1), "shift_flip"


CASES = ("pictures", "pictures as they are", "sounds", "windows", "vectors", "masks", "boxes")


def options_of(augment: str) -> TrainOptions:
    return TrainOptions(epochs=EPOCHS, batch_size=16, learning_rate=0.05, augment=augment)  # type: ignore[arg-type]


def built(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(SEED)
    return make()


def plainly(
    module: nn.Module, data: Data, steps: list[dict], options: TrainOptions, **arguments: Any
) -> dict[str, Tensor]:
    """One sample after the other is drawn, preprocessed and learnt, and nothing else is done meanwhile."""
    weights = [each for each in module.parameters() if each.ndim > 1]
    others = [each for each in module.parameters() if each.ndim <= 1]
    groups = [{"params": weights, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}]
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "rmsprop": torch.optim.RMSprop}[options.optimizer]
    optimiser = kind(groups, lr=options.learning_rate, foreach=False, **arguments)
    random, step = np.random.default_rng(SEED), 0
    hard, reconstructs = losses.label_loss(data.task), data.task == "anomaly"
    total = len(batches.batch_slices(COUNT, options.batch_size)) * options.epochs
    module.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    torch.manual_seed(SEED)
    torch.use_deterministic_algorithms(True)
    try:
        with strided_pointwise_as_slices(module):
            for _ in range(options.epochs):
                for raw, labels in batches.epoch(data, options, random):
                    inputs = torch.from_numpy(np.array(apply(steps, raw))).clone()
                    x = inputs.permute(0, 3, 1, 2) if inputs.ndim == 4 else inputs
                    for group in optimiser.param_groups:
                        group["lr"] = options.learning_rate * learning_rate_at(step, total)
                    optimiser.zero_grad()
                    hard(join_outputs(module(x)), x if reconstructs else torch.from_numpy(labels)).backward()
                    optimiser.step()
                    step += 1
    finally:
        torch.use_deterministic_algorithms(False)
    return {name: value.clone() for name, value in module.state_dict().items()}


def trained(module: nn.Module, data: Data, steps: list[dict], options: TrainOptions) -> dict[str, Tensor]:
    """The weights of `fit` after its last epoch, whichever it keeps."""
    found: list[dict[str, Tensor]] = []

    def epoch_ended(_: object) -> None:
        found.append({name: value.clone() for name, value in module.state_dict().items()})

    fit(module, data, steps, options, seed=SEED, device="cpu", threads=1, on_epoch=epoch_ended)
    return found[-1]


def assert_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.fixture(autouse=True)
def _one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", CASES)
def test_trained_weights_are_those_of_the_plain_loop(name: str) -> None:
    data, steps, make, augment = case(name)
    expected = plainly(built(make), data, steps, options_of(augment), momentum=0.9, nesterov=True)
    assert_same(trained(built(make), data, steps, options_of(augment)), expected)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("sgd", {"momentum": 0.5, "nesterov": False, "dampening": 0.1}),
        ("adamw", {}),
        ("adamw", {"betas": [0.8, 0.95], "eps": 1e-6, "amsgrad": True}),
        ("rmsprop", {"alpha": 0.9, "momentum": 0.9, "centered": True}),
    ],
)
def test_other_optimizers_give_the_weights_of_the_plain_loop(name: str, arguments: dict[str, Any]) -> None:
    data, steps, make, augment = case("pictures")
    changes = {"optimizer": name, "optimizer_options": arguments, "learning_rate": 0.002}
    chosen = options_of(augment).model_copy(update=changes)
    expected = plainly(built(make), data, steps, chosen, **arguments)
    assert_same(trained(built(make), data, steps, chosen), expected)


def test_inputs_too_large_to_be_held_give_the_same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    data, steps, make, augment = case("sounds")
    held = trained(built(make), data, steps, options_of(augment))
    monkeypatch.setattr(predict.Inputs.__init__, "__defaults__", (0,))
    assert predict.Inputs(data.train.x, steps)._prepared is None
    assert_same(trained(built(make), data, steps, options_of(augment)), held)
