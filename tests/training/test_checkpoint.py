"""A training that was stopped goes on to the same bits; what cannot be gone on from is begun anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.models.resnet import resnet8
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import History, fit
from edgekit.training.losses import hints, soft_targets
from edgekit.training.objective import Distillation
from tests.training.test_fit import SCALE, bars, blobs, convolutions, data_of, options, perceptron, same


@pytest.fixture
def vectors():
    return data_of(blobs, "vector", 3)


class Stopped(Exception):
    """Stands for whatever ends a process between two epochs."""


def stop_after(epoch: int):
    def on_epoch(result) -> None:
        if result.epoch == epoch:
            raise Stopped

    return on_epoch


def trained(module: nn.Module, data, seed: int = 3, **rest) -> History:
    return fit(module, data, rest.pop("preprocess", []), rest.pop("options", options(6)), seed=seed, device="cpu",
               threads=1, **rest)  # fmt: skip


@pytest.mark.parametrize("epoch", [1, 3, 6])
def test_a_stopped_training_goes_on_to_the_same_bits(vectors, tmp_path, epoch) -> None:
    """The perceptron has dropout and batch norm: torch's generator and the running statistics count as well."""
    whole, halves = perceptron(), perceptron()
    expected = trained(whole, vectors)
    place = Checkpoint(tmp_path / "training/net.safetensors", "key")
    with pytest.raises(Stopped):
        trained(halves, vectors, resume=place, on_epoch=stop_after(epoch))
    heard = []
    again = perceptron(seed=9)  # whatever its weights are, the checkpoint's count
    history = trained(again, vectors, resume=place, on_epoch=heard.append)
    assert history == expected
    assert [result.epoch for result in heard] == list(range(epoch + 1, 7))
    assert same(again, whole)


def test_images_augmented_under_a_teacher_go_on_as_well(tmp_path) -> None:
    data = data_of(bars, "image", 2)
    teacher = convolutions(1)
    shapes = {"input_shape": (1, 8, 8), "num_classes": 2}
    chosen = options(4, augment="shift_flip")
    networks = []
    for part, lesson in (("a", soft_targets.Options()), ("b", hints.Options())):
        student = resnet8(**shapes, width=4) if part == "b" else convolutions()
        taught_by = resnet8(**shapes, width=8) if part == "b" else teacher
        start = {name: value.clone() for name, value in student.state_dict().items()}
        given = Distillation(taught_by, lesson, tmp_path / "answers")
        trained(student, data, preprocess=SCALE, options=chosen, distillation=given)
        expected = {name: value.clone() for name, value in student.state_dict().items()}
        place = Checkpoint(tmp_path / f"{part}.safetensors", "key")
        student.load_state_dict(start)
        given = Distillation(taught_by, lesson, tmp_path / "answers again")  # an empty cache
        with pytest.raises(Stopped):
            trained(
                student,
                data,
                preprocess=SCALE,
                options=chosen,
                distillation=given,
                resume=place,
                on_epoch=stop_after(2),
            )
        trained(student, data, preprocess=SCALE, options=chosen, distillation=given, resume=place)
        networks.append(all(torch.equal(value, expected[name]) for name, value in student.state_dict().items()))
    assert networks == [True, True]


def test_a_finished_training_is_only_recalled(vectors, tmp_path) -> None:
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    first, again, heard = perceptron(), perceptron(), []
    expected = trained(first, vectors, resume=place)
    assert trained(again, vectors, resume=place, on_epoch=heard.append) == expected
    assert same(first, again) and heard == []


def test_early_stopping_is_remembered(vectors, tmp_path) -> None:
    chosen = options(200, patience_epochs=3, learning_rate=1e-9)
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    expected = trained(perceptron(), vectors, options=chosen, resume=place)
    heard = []
    assert trained(perceptron(), vectors, options=chosen, resume=place, on_epoch=heard.append) == expected
    assert heard == []


def test_another_key_begins_anew(vectors, tmp_path) -> None:
    trained(perceptron(), vectors, resume=Checkpoint(tmp_path / "net.safetensors", "one"))
    heard = []
    trained(perceptron(), vectors, resume=Checkpoint(tmp_path / "net.safetensors", "two"), on_epoch=heard.append)
    assert [result.epoch for result in heard] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "foreign"])
def test_what_is_damaged_is_begun_anew(vectors, tmp_path, damage) -> None:
    place = Checkpoint(tmp_path / "net.safetensors", "key")
    expected = trained(perceptron(), vectors, resume=place)
    content = bytearray(place.path.read_bytes())
    if damage == "flip":
        content[-100] ^= 1
    changed = {"cut": content[:-50], "flip": content, "empty": b"", "foreign": b"not tensors at all" * 10}[damage]
    place.path.write_bytes(changed)
    assert place.load() is None
    heard = []
    assert trained(perceptron(), vectors, resume=place, on_epoch=heard.append) == expected
    assert len(heard) == 6


def test_tensors_and_facts_come_back_as_they_were(tmp_path) -> None:
    place = Checkpoint(tmp_path / "below/net.safetensors", "key")
    shared = torch.arange(6.0).reshape(2, 3)
    place.save({"a": shared.t(), "b": shared, "c": torch.tensor(2**40)}, {"random": 2**100, "rate": 0.1})
    tensors, facts = place.load() or ({}, {})
    assert facts == {"random": 2**100, "rate": 0.1}
    assert torch.equal(tensors["a"], shared.t()) and torch.equal(tensors["b"], shared)
    assert np.array_equal(tensors["c"].numpy(), 2**40)
    assert [path.name for path in place.path.parent.iterdir()] == ["net.safetensors"]
