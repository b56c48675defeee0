"""Real processes train together: one digest for any number of them, killed or not, and nothing is left of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from edgekit.core.errors import StageError
from edgekit.models.resnet import resnet8
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.data_parallel.environment import use_processes
from edgekit.training.losses import dkd, hints
from edgekit.training.objective import Distillation
from tests.conftest import ROOT
from tests.training.data_parallel.test_shards import residual, trained
from tests.training.test_fit import SCALE, bars, blobs, data_of, options, perceptron, same

pytestmark = pytest.mark.processes
WORKER = "edgekit.training.data_parallel.worker:train"


def workers(parent: int) -> list[int]:
    """Process numbers of the training processes that this one started, by the folder that their command names."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().decode().split("\0")
            before = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        if WORKER in command and before == parent:
            found.append(int(path.name))
    return sorted(found)


def is_there(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(processes: list[int], within_s: float = 20.0) -> bool:
    until = time.monotonic() + within_s
    while any(is_there(each) for each in processes):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def images():
    return data_of(bars, "image", 2)


@pytest.fixture
def vectors():
    return data_of(blobs, "vector", 3)


def test_one_two_and_four_processes_give_one_network(images) -> None:
    """Batch norm, a teacher's feature maps, layers beside the network, augmentation, a last batch of another size."""
    networks, histories, seen = [], [], []
    for count in (1, 2, 4):
        network = residual()
        with use_processes(count):
            history = trained(
                network, images, 4, SCALE, options(2, augment="shift_flip", batch_size=18),
                distillation=Distillation(residual(8, 1), hints.Options()),
                on_epoch=lambda _: seen.append(len(workers(os.getpid()))),
            )  # fmt: skip
        networks.append(network)
        histories.append(history)
    assert all(same(networks[0], other) for other in networks[1:])
    assert histories.count(histories[0]) == 3
    assert seen == [0, 0, 1, 1, 3, 3]
    assert workers(os.getpid()) == []


def test_mixed_samples_and_averaged_weights_are_the_same_for_any_number_of_processes(images) -> None:
    chosen = options(
        2, augment="shift_flip", ema_decay=0.9, augmentations=[{"kind": "cutmix"}, {"kind": "rand_augment"}]
    )
    networks, histories = [residual(), residual()], []
    for count, network in zip((1, 2), networks, strict=True):
        with use_processes(count):
            lesson = Distillation(residual(8, 1), dkd.Options())
            histories.append(trained(network, images, 2, SCALE, chosen, distillation=lesson))
    assert same(*networks)
    assert histories[0] == histories[1]


def test_adamw_on_accumulated_gradients_of_smoothed_labels_is_the_same_for_any_number_of_processes(vectors) -> None:
    chosen = options(3, optimizer="adamw", learning_rate=0.01, accumulate_batches=2, clip_norm=0.5, label_smoothing=0.1)
    networks, histories = [perceptron(), perceptron()], []
    for count, network in zip((1, 2), networks, strict=True):
        with use_processes(count):
            histories.append(trained(network, vectors, 2, chosen=chosen))
    assert same(*networks)
    assert histories[0] == histories[1]


def test_a_killed_process_ends_the_training_in_words_and_the_next_one_goes_on(vectors, tmp_path) -> None:
    whole = perceptron()
    expected = trained(whole, vectors, 4, chosen=options(4))
    place, killed = Checkpoint(tmp_path / "net.safetensors", "key"), []

    def kill(result) -> None:
        if result.epoch == 2:
            killed.extend(workers(os.getpid()))
            os.kill(killed[-1], signal.SIGKILL)

    with use_processes(3), pytest.raises(StageError) as caught:
        trained(perceptron(), vectors, 4, chosen=options(4), resume=place, on_epoch=kill)
    message = str(caught.value)
    assert caught.value.exit_code == 6 and "\n" not in message
    assert message.startswith(("training process 2 of 3 was killed (SIGKILL)", "training process 3 of 3 was killed"))
    assert message.endswith("finished epochs are saved; run the stage again to continue the training")
    assert len(killed) == 2 and gone(killed)
    again = perceptron(seed=9)
    with use_processes(2):
        assert trained(again, vectors, 4, chosen=options(4), resume=place) == expected
    assert same(again, whole)


SCRIPT = """
import sys, pathlib
from tests.training.data_parallel.test_processes import *
place = Checkpoint(pathlib.Path(sys.argv[1]), "key")
with use_processes(2):
    trained(perceptron(), data_of(blobs, "vector", 3), 4, chosen=options(400), resume=place,
            on_epoch=lambda result: print(result.epoch, *workers(os.getpid()), flush=True))
"""


def test_nothing_outlives_a_first_process_that_is_killed(tmp_path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "net.safetensors")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    assert process.stdout is not None
    epoch, *others = map(int, process.stdout.readline().split())
    assert epoch == 1 and len(others) == 1 and is_there(others[0])
    process.kill()
    process.wait()
    process.stdout.close()
    assert gone(others)
    assert Checkpoint(tmp_path / "net.safetensors", "key").load() is not None


@pytest.mark.parametrize("where", ["local", "of a notebook"])
def test_a_network_that_cannot_be_sent_is_trained_by_one_process(where, vectors, capsys, monkeypatch) -> None:
    class Local(nn.Sequential):
        """Of no module that another process could import."""

    class OfNotebook(nn.Sequential):
        """As of a notebook or a script: pickle finds it there, and the other process does not."""

    OfNotebook.__module__, OfNotebook.__qualname__ = "__main__", "OfNotebook"
    monkeypatch.setattr(sys.modules["__main__"], "OfNotebook", OfNotebook, raising=False)
    kind = {"local": Local, "of a notebook": OfNotebook}[where]

    def make() -> nn.Module:
        torch.manual_seed(0)
        return kind(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    alone, parallel = make(), make()
    trained(alone, vectors, 2)
    with use_processes(2):
        trained(parallel, vectors, 2)
    assert "one process trains all 2 shards, because the network cannot be sent to others" in capsys.readouterr().out
    assert same(alone, parallel)


def test_a_quantized_network_is_sent_and_tuned_to_the_same_bits(images) -> None:
    import copy

    import nncf

    from edgekit.models.quantized import quantizable

    module = resnet8(input_shape=(1, 8, 8), num_classes=2, width=4).eval()
    quantized = nncf.quantize(quantizable(module), nncf.Dataset([torch.rand(8, 1, 8, 8)]))
    tuned = []
    for count in (1, 2):
        tuned.append(copy.deepcopy(quantized))
        with use_processes(count):
            trained(tuned[-1], images, 2, SCALE, options(1))
    assert same(*tuned) and not same(tuned[0], quantized)


class Faulty(nn.Sequential):
    """Fails in every process but the first."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if WORKER in " ".join(sys.orig_argv):
            raise ValueError("not in this process")
        found: torch.Tensor = super().forward(x)
        return found


def test_an_error_in_another_process_is_reported_in_its_words(vectors) -> None:
    with (
        use_processes(2),
        pytest.raises(StageError, match=r"^training process 2 of 2: ValueError: not in this process \(te"),
    ):
        trained(Faulty(nn.Linear(4, 3)), vectors, 2)
    assert workers(os.getpid()) == []
