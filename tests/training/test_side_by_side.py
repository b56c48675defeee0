"""Trainings that other processes have brought to their end are recalled to the same bits; a lost one goes on."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, ModelError
from edgekit.data import Data, Split, mapped
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.fit import EpochResult, fit
from edgekit.training.side_by_side import FOLDER, PARALLEL, Training, ahead
from tests.training.test_fit import blobs, data_of, options, perceptron, same

EPOCHS = 4


def place(home: Path, seed: int) -> Checkpoint:
    return Checkpoint(home / f"net-{seed}.safetensors", f"key/{seed}")


def train(
    data: Data, home: Path, seed: int, on_epoch: Callable[[EpochResult], None] | None = None, rate: float = 0.05
) -> object:
    network = perceptron(seed)
    chosen = options(EPOCHS, learning_rate=rate)
    fit(network, data, [], chosen, seed=seed, device="cpu", threads=1, resume=place(home, seed), on_epoch=on_epoch)
    return network


def train_and_die(data: Data, home: Path, seed: int) -> object:
    def killed(result: EpochResult) -> None:
        if result.epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    return train(data, home, seed, killed)


def trainings(data: Data, home: Path, how: Callable[..., object] = train, **rest: float) -> list[Training]:
    return [
        Training(
            f"net {seed}", place(home, seed), EPOCHS, partial(how if seed == 1 else train, data, home, seed, **rest)
        )
        for seed in range(3)
    ]


@pytest.fixture
def data() -> Data:
    return data_of(blobs, "vector", 3)


@pytest.fixture(autouse=True)
def _two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARALLEL, "2")


def test_what_was_made_ahead_is_recalled_to_the_same_bits(data: Data, tmp_path: Path) -> None:
    ahead(trainings(data, tmp_path / "ahead"), tmp_path / "ahead")
    assert not (tmp_path / "ahead" / FOLDER).exists()
    for seed in range(3):
        heard: list[EpochResult] = []
        recalled = train(data, tmp_path / "ahead", seed, heard.append)
        assert heard == []  # no epoch was left to be trained here
        assert same(recalled, train(data, tmp_path / "here", seed))
    begun = {path.stat().st_mtime_ns for path in (tmp_path / "ahead").glob("*.safetensors")}
    ahead(trainings(data, tmp_path / "ahead"), tmp_path / "ahead")  # all are finished: nothing is started
    assert begun == {path.stat().st_mtime_ns for path in (tmp_path / "ahead").glob("*.safetensors")}


def test_a_killed_one_costs_only_its_own_epochs(data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ahead(trainings(data, tmp_path / "ahead", train_and_die), tmp_path / "ahead")
    assert "net 1: the process was killed (SIGKILL)" in capsys.readouterr().out
    heard: list[EpochResult] = []
    found = [train(data, tmp_path / "ahead", seed, heard.append) for seed in range(3)]
    # its second epoch was on disk before it was killed
    assert [result.epoch for result in heard] == [3, 4]
    assert all(same(each, train(data, tmp_path / "here", seed)) for seed, each in enumerate(found))


def test_an_error_is_the_stages_own_to_raise(data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = replace(data, train=Split(data.train.x * np.float32("nan"), data.train.y))
    ahead(trainings(wild, tmp_path), tmp_path)
    said = capsys.readouterr().out
    assert said.count("the stage goes on from its checkpoint") == 3 and "the loss is nan" in said
    with pytest.raises(ModelError, match="epoch 1: the loss is nan"):
        train(wild, tmp_path, 0)


@pytest.mark.parametrize("count", ["1", ""])
def test_one_at_a_time_starts_no_process(count: str, data: Data, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv(PARALLEL, count)
    ahead(trainings(data, tmp_path), tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_handed_on_is_trained_in_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ahead([Training(f"{n}", place(tmp_path, n), EPOCHS, lambda: None) for n in range(2)], tmp_path)
    assert "side by side: these trainings cannot be handed on (" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["0", "two", "65", "-1"])
def test_a_wrong_number_is_told(wrong: str, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARALLEL, wrong)
    with pytest.raises(
        ConfigError, match=f"^EDGEKIT_PARALLEL: got '{wrong}'; give a whole number from 1 to 64, or unset"
    ):
        ahead(trainings(data, tmp_path), tmp_path)


def test_a_mapped_split_is_handed_on_by_its_place(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((1000, 500), np.float32)
    np.save(tmp_path / "x.npy", x)
    whole = np.load(tmp_path / "x.npy", mmap_mode="r")
    with open(tmp_path / "data.pickle", "wb") as stream:
        mapped.Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump([whole, whole[10:500:2, :100]])
    assert (tmp_path / "data.pickle").stat().st_size < 2000
    found = pickle.loads((tmp_path / "data.pickle").read_bytes())
    assert np.array_equal(found[0], x) and np.array_equal(found[1], x[10:500:2, :100])
    assert not found[0].flags.writeable
