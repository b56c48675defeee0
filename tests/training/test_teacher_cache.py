"""A teacher answers once, its answers come back bit for bit, and it answers again if anything they rest on changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.training.fit import fit
from edgekit.training.losses import dkd, soft_targets
from edgekit.training.objective import Distillation
from edgekit.training.teacher_cache import TeacherCache, teacher_digest
from tests.training.test_fit import SCALE, bars, convolutions, data_of, options, same

pytestmark = pytest.mark.processes


class Counted(nn.Module):
    """A teacher that counts its calls."""

    def __init__(self, seed: int = 1) -> None:
        super().__init__()
        self.network, self.calls = convolutions(seed), 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.network(x)


@pytest.fixture
def images():
    return data_of(bars, "image", 2)


def train(module, data, teacher, home, loss=None, seed=0, epochs=2, **changes) -> nn.Module:
    chosen = options(epochs, **{"augment": "shift_flip", **changes})
    fit(module, data, SCALE, chosen, seed=seed, device="cpu", threads=1,
        distillation=Distillation(teacher, loss or soft_targets.Options(), home))  # fmt: skip
    return module


def test_a_second_training_asks_nothing_and_learns_the_same_bits(images, tmp_path) -> None:
    teacher = Counted()
    live = train(convolutions(), images, teacher, None)
    batches, teacher.calls = teacher.calls, 0
    first = train(convolutions(), images, teacher, tmp_path)
    assert teacher.calls == batches == 12  # 97 samples in batches of 16, the odd one left out, two epochs
    second = train(convolutions(), images, teacher, tmp_path)
    assert teacher.calls == 12
    assert same(first, second) and same(first, live)


def test_another_loss_and_more_epochs_share_them(images, tmp_path) -> None:
    teacher = Counted()
    train(convolutions(), images, teacher, tmp_path)
    train(convolutions(2), images, teacher, tmp_path, loss=dkd.Options())
    assert teacher.calls == 12
    train(convolutions(2), images, teacher, tmp_path, epochs=3)
    assert teacher.calls == 18


@pytest.mark.parametrize("change", ["seed", "batch_size", "augment", "augmentations", "teacher", "data", "steps"])
def test_what_they_rest_on_is_asked_anew(images, tmp_path, change) -> None:
    train(convolutions(), images, Counted(), tmp_path)
    teacher = Counted(2 if change == "teacher" else 1)
    data = replace(images, digest="1" * 64) if change == "data" else images
    more = {
        "seed": {"seed": 1},
        "batch_size": {"batch_size": 8},
        "augment": {"augment": "none"},
        "augmentations": {"augmentations": [{"kind": "erase"}]},
    }.get(change, {})
    if change == "steps":
        fit(convolutions(), data, [{"step": "scale", "factor": 1 / 128}], options(2, augment="shift_flip"), seed=0,
            device="cpu", threads=1, distillation=Distillation(teacher, soft_targets.Options(), tmp_path))  # fmt: skip
    else:
        train(convolutions(), data, teacher, tmp_path, **more)
    assert teacher.calls


def test_damaged_ones_are_asked_anew(images, tmp_path) -> None:
    teacher = Counted()
    first = train(convolutions(), images, teacher, tmp_path)
    [kept, _] = sorted(tmp_path.rglob("*.npz"))
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    assert same(train(convolutions(), images, teacher, tmp_path), first)
    assert teacher.calls == 18


def test_without_a_folder_nothing_is_written(tmp_path) -> None:
    nowhere = TeacherCache(None)
    nowhere.put(1, np.zeros((2, 2), np.float32))
    assert nowhere.get(1) is None
    assert list(tmp_path.iterdir()) == []


def test_a_teachers_digest_sees_structure_as_well_as_weights() -> None:
    one, other = nn.Conv2d(1, 1, 3), nn.Conv2d(1, 1, 3, stride=2)
    other.load_state_dict(one.state_dict())
    assert teacher_digest(one) != teacher_digest(other)
    assert teacher_digest(one) == teacher_digest(one)


def test_a_teachers_digest_sees_the_users_source(tmp_path, monkeypatch) -> None:
    """A network whose forward is edited has the same structure and the same weights, and gives other answers."""
    source = "from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x.relu()\n"
    (tmp_path / "nets_of_a_user.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    from nets_of_a_user import Net  # type: ignore[import-not-found]

    before = teacher_digest(Net())
    (tmp_path / "nets_of_a_user.py").write_text(source.replace("relu", "tanh"))
    assert teacher_digest(Net()) != before
