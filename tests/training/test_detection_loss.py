"""What a detector is trained on: the least where it says what is there, and a slope towards it from everywhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from edgekit.core import tasks
from edgekit.core.config import TrainOptions
from edgekit.data import load, parse
from edgekit.models.detector import detector
from edgekit.runner.boxes import grid_centres
from edgekit.training import task_losses
from edgekit.training.batches import augment_boxes
from edgekit.training.fit import fit
from edgekit.training.predict import sample_scores
from tests.core.tasks.test_detection import CLASSES, HEIGHT, POINTS, WIDTH, labels
from tests.data.boxed import WRITERS, scenes


def perfect(y: torch.Tensor) -> torch.Tensor:
    """Outputs (n, points, 4 + classes) in which each point that answers for a box gives just that box, and is sure."""
    points, strides = (torch.from_numpy(each) for each in grid_centres((HEIGHT, WIDTH), POINTS))
    box_of = task_losses.assign_points(y[:, 1:], points, strides[:, 0])
    outputs = torch.zeros(len(y), POINTS, 4 + CLASSES)
    outputs[..., 4:] = -20
    for picture, rows in enumerate(box_of):
        for point in torch.nonzero(rows >= 0)[:, 0]:
            kind, *sides = y[picture, 1 + rows[point]]
            low, high = torch.stack(sides[:2]), torch.stack(sides[2:])
            outputs[picture, point, :4] = torch.cat([points[point] - low, high - points[point]]) / strides[point]
            outputs[picture, point, 4 + int(kind)] = 20
    return outputs


@pytest.fixture(scope="module")
def targets() -> torch.Tensor:
    return torch.from_numpy(labels(8, 3))


def test_a_network_that_says_what_is_there_loses_nothing(targets: torch.Tensor) -> None:
    outputs = perfect(targets)
    assert float(task_losses.detection_loss(outputs, targets)) == pytest.approx(0, abs=1e-4)
    assert float(task_losses.detection_distance(outputs, outputs, 2.0)) == pytest.approx(0, abs=1e-5)
    found = tasks.load_task("detection").score_samples(outputs.numpy(), None, targets.numpy())
    assert tasks.accuracy(found) > 0.85  # boxes that lie one upon the other share their points


@pytest.mark.parametrize("place", [0, 3, 4])
def test_every_error_costs_and_has_a_slope(place: int, targets: torch.Tensor) -> None:
    outputs = perfect(targets)
    outputs[..., place] -= 25 if place >= 4 else 3
    outputs.requires_grad_()
    loss = task_losses.detection_loss(outputs, targets)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss) > 0.01
    assert outputs.grad is not None and bool((outputs.grad[..., place] != 0).any())
    assert torch.isfinite(outputs.grad).all()


def test_every_box_is_answered_for(targets: torch.Tensor) -> None:
    points, strides = (torch.from_numpy(each) for each in grid_centres((HEIGHT, WIDTH), POINTS))
    y = torch.full((1, 3, 5), -1.0)
    y[0, 0] = torch.tensor([0.0, 8.0, 8.0, 18.0, 18.0])
    y[0, 1] = torch.tensor([1.0, 20.0, 4.0, 90.0, 60.0])
    found = task_losses.assign_points(y, points, strides[:, 0])[0]
    assert set(found.tolist()) == {-1, 0, 1}
    assert (strides[found == 0] == 8).all() and (strides[found == 1] == 16).all()


def test_pictures_without_a_thing_are_learnt_from(targets: torch.Tensor) -> None:
    y = targets.clone()
    y[:, 1:, 0] = -1
    outputs = torch.zeros(len(y), POINTS, 4 + CLASSES, requires_grad=True)
    loss = task_losses.detection_loss(outputs, y)
    loss.backward()  # type: ignore[no-untyped-call]
    assert float(loss) > 1 and outputs.grad is not None and bool((outputs.grad[..., 4:] > 0).all())


@pytest.mark.parametrize("kind", ["shift", "shift_flip"])
def test_boxes_move_with_the_pixels(kind: str) -> None:
    """Each box's inside is of one value, before as after."""
    y = np.full((60, 2, 5), -1, dtype=np.float32)
    y[:, 0], y[:, 1] = (-1, 0, 0, 64, 48), (0, 10, 8, 40, 30)
    images = np.zeros((60, 48, 64, 3), dtype=np.uint8)
    images[:, 8:30, 10:40] = 200
    moved, found = augment_boxes(images, y, kind, np.random.default_rng(1))
    assert len({row.tobytes() for row in found[:, 1]}) > 20
    for image, (_, left, top, right, bottom) in zip(moved, found[:, 1].astype(int), strict=True):
        shown = np.argwhere(image[..., 0] == 200)
        assert (shown.min(axis=0).tolist(), (shown.max(axis=0) + 1).tolist()) == ([top, left], [bottom, right])
    assert np.array_equal(images[:, 8:30, 10:40], np.full((60, 22, 30, 3), 200))
    assert np.array_equal(y[:, 1], np.tile((0, 10, 8, 40, 30), (60, 1)))


def test_a_box_that_a_shift_moves_out_is_dropped() -> None:
    y = np.full((200, 3, 5), -1, dtype=np.float32)
    y[:, 0], y[:, 1], y[:, 2] = (-1, 0, 0, 64, 48), (0, 0, 0, 8, 6), (0, 30, 20, 40, 30)
    _, found = augment_boxes(np.zeros((200, 48, 64, 3), np.uint8), y, "shift", np.random.default_rng(1))
    kept = found[:, 1, 0] == 0
    assert 20 < kept.sum() < 180 and (found[:, 2, 0] == 0).all()
    areas = (found[kept, 1, 3] - found[kept, 1, 1]) * (found[kept, 1, 4] - found[kept, 1, 2])
    assert areas.min() >= 0.4 * 48 - 1e-3


@pytest.mark.numerics
def test_a_small_detector_learns_small_scenes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    WRITERS["yolo"](tmp_path / "data", scenes(150))
    section = {"source": "boxes", "path": str(tmp_path / "data"), "annotations": "yolo", "height": 48, "width": 64,
               "calibration_samples": 6, "cache": str(tmp_path / "cache")}  # fmt: skip
    data = load(parse(section, "detection"))
    torch.manual_seed(0)
    network = detector((3, 48, 64), 3, width=8, depth=1, block="residual")
    steps = [{"step": "scale", "factor": 1 / 255}]
    options = TrainOptions.model_validate({"epochs": 15, "batch_size": 8, "learning_rate": 0.02, "augment": "shift"})
    fit(network, data, steps, options, seed=0, device="cpu")
    assert tasks.accuracy(sample_scores(network, data.test, steps, "detection")) > 0.5
