"""Label smoothing: its formula for classes and for mixed samples, where it counts, and where it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from edgekit.core.errors import ConfigError
from edgekit.core.tasks import TASKS
from edgekit.training import losses
from edgekit.training.fit import fit
from edgekit.training.losses import soft_targets
from edgekit.training.objective import Distillation
from edgekit.training.predict import logits
from tests.training.test_fit import SCALE, bars, blobs, convolutions, data_of, options, perceptron, same

SCORES = torch.randn(5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CLASSES = torch.tensor([0, 1, 2, 1, 0])
MIXED = 0.2 + 0.4 * torch.eye(3, dtype=torch.float64)[CLASSES]


@pytest.mark.parametrize("labels", [CLASSES, MIXED])
def test_every_class_gets_its_part_of_the_share(labels: torch.Tensor) -> None:
    """Szegedy et al. 2016, section 7, for classes and for the shares of mixed samples."""
    shares = labels if labels.is_floating_point() else torch.eye(3, dtype=torch.float64)[labels]
    expected = -((0.7 * shares + 0.3 / 3) * SCORES.log_softmax(1)).sum(1).mean()
    assert losses.label_loss("classification", 0.3)(SCORES, labels) == pytest.approx(float(expected))


def test_a_network_learns_to_be_less_certain_and_is_validated_by_its_labels() -> None:
    data = data_of(blobs, "vector", 3)
    largest = []
    for smoothing in (0.0, 0.3):
        module = perceptron()
        chosen = options(10, label_smoothing=smoothing)
        history = fit(module, data, [], chosen, seed=0, device="cpu", threads=1)
        scores = torch.from_numpy(logits(module, data.validation.x, []))
        plain = functional.cross_entropy(scores, torch.from_numpy(data.validation.y))
        assert history.best.validation_loss == pytest.approx(float(plain), rel=1e-5)
        largest.append(float(scores.softmax(1).amax(1).mean()))
    assert largest[1] < largest[0] - 0.05


def test_under_a_teacher_and_with_mixed_samples_it_counts_as_well() -> None:
    data, networks = data_of(bars, "image", 2), []
    for smoothing in (0.0, 0.2):
        networks.append(convolutions())
        chosen = options(1, label_smoothing=smoothing, augmentations=[{"kind": "mixup"}])
        lesson = Distillation(convolutions(1), soft_targets.Options())
        fit(networks[-1], data, SCALE, chosen, seed=0, device="cpu", threads=1, distillation=lesson)
    assert not same(*networks)


@pytest.mark.parametrize("task", [each for each in TASKS if each != "classification"])
def test_labels_that_are_not_classes_are_refused(task: str) -> None:
    data = replace(data_of(blobs, "vector", 3), task=task)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=f"^label_smoothing: got 0.1, but task is {task}; only the labels of class"):
        fit(perceptron(), data, [], options(label_smoothing=0.1), seed=0, device="cpu", threads=1)
