"""Trainings that other processes have brought to their end are recalled to the same bits; a lost one goes on."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.config import TrainingOptions
from edgekit.core.errors import ConfigError, ModelError
from edgekit.data import Data, Split
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.training import parallel_trainings
from edgekit.training.checkpoint import Checkpoint
from edgekit.training.losses import soft_targets
from edgekit.training.objective import Distillation
from edgekit.training.parallel_trainings import FOLDER, PARALLEL, Training, train_in_parallel
from edgekit.training.teachers.ensemble import Ensemble
from tests.training.test_fit import blobs, data_of, options, same

pytestmark = pytest.mark.processes

EPOCHS = 4
HOW = [
    TrainingOptions.model_validate(options) for options in ({}, {"shares": 2}, {"shares": 2, "precision": "bfloat16"})
]
"""Each changes the bits: what is made ahead must be made with it."""
MLP = "edgekit.models.mlp:mlp"


def trainings(data: Data, home: Path, epochs: int = EPOCHS) -> list[Training]:
    """Two by the labels, of two seeds, and one under a teacher."""
    spec, taught_by = (spec_for(data, MLP, {"width": width, "depth": 1}, []) for width in (8, 16))
    lesson = Distillation(store.build(taught_by, 5), soft_targets.Options(), home / "answers")
    return [
        Training(
            f"net {n}", Checkpoint(home / f"net-{n}.safetensors", f"key/{n}"), spec, options(epochs), min(n, 1),
            "cpu", 1, HOW[n], lesson if n == 2 else None, taught_by if n == 2 else None,
        )
        for n in range(3)
    ]  # fmt: skip


@pytest.fixture
def data() -> Data:
    return data_of(blobs, "vector", 3)


@pytest.fixture(autouse=True)
def _two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARALLEL, "2")


def test_what_was_made_ahead_is_recalled_to_the_same_bits(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, here = trainings(data, tmp_path / "ahead"), trainings(data, tmp_path / "here")
    train_in_parallel(made, data, tmp_path / "ahead")
    assert not (tmp_path / "ahead" / FOLDER).exists()
    files = {each.checkpoint.path: each.checkpoint.path.stat().st_mtime_ns for each in made}
    for one, other in zip(made, here, strict=True):
        assert one.is_finished and same(one.fit(data)[0], other.fit(data)[0])
        assert f"{one.checkpoint.path.stem}: had finished after 4 of 4 epochs" in capsys.readouterr().out
    train_in_parallel(made, data, tmp_path / "ahead")  # all are finished: nothing is started
    assert files == {path: path.stat().st_mtime_ns for path in files}


def test_students_of_several_teachers_together_are_made_ahead_too(data: Data, tmp_path: Path) -> None:
    specs = [spec_for(data, MLP, {"width": width, "depth": 1}, []) for width in (16, 24)]
    teacher = Ensemble([store.build(spec, 5).eval() for spec in specs], specs, "probabilities")
    made, here = (
        [
            replace(each, distillation=Distillation(teacher, soft_targets.Options()), teacher=None)
            for each in trainings(data, tmp_path / place, 2)[1:]
        ]
        for place in ("ahead", "here")
    )
    train_in_parallel(made, data, tmp_path / "ahead")
    for one, other in zip(made, here, strict=True):
        assert one.is_finished and same(one.fit(data)[0], other.fit(data)[0])


def test_a_killed_one_goes_on_from_its_checkpoint(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that keeps the first checkpoint is killed as soon as there is one."""
    made = trainings(data, tmp_path / "ahead", 60)
    killer = threading.Thread(target=kill_the_owner_of, args=(made[0].checkpoint.path,), daemon=True)
    killer.start()
    train_in_parallel(made, data, tmp_path / "ahead")
    killer.join()
    assert "net 0: the process was killed (SIGKILL)" in capsys.readouterr().out
    assert [each.is_finished for each in made] == [False, True, True]
    networks = [each.fit(data)[0] for each in made]
    assert "net-0: continues after" in capsys.readouterr().out
    here = trainings(data, tmp_path / "here", 60)
    assert all(same(one, other.fit(data)[0]) for one, other in zip(networks, here, strict=True))


def test_what_a_killed_stage_left_is_no_hindrance(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainings(data, tmp_path)
    (tmp_path / FOLDER).mkdir()
    parallel_trainings.write_data(data, tmp_path / FOLDER / "data")
    (tmp_path / FOLDER / "0").mkdir()
    (tmp_path / FOLDER / "0" / "job.json").write_text("{")
    train_in_parallel(made, data, tmp_path)
    assert all(each.is_finished for each in made) and not (tmp_path / FOLDER).exists()


def kill_the_owner_of(checkpoint: Path) -> None:
    while not checkpoint.is_file():
        time.sleep(0.002)
    command = ["edgekit.training.parallel_trainings:train", str(checkpoint.parent / FOLDER / "0")]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[-3:-1] == command:
            os.kill(int(folder.name), signal.SIGKILL)


def test_an_error_is_the_stages_own_to_raise(data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wild = replace(data, train=Split(data.train.x * np.float32("nan"), data.train.y))
    made = trainings(wild, tmp_path)
    train_in_parallel(made, wild, tmp_path)
    output = capsys.readouterr().out
    assert output.count("the stage continues from its checkpoint") == 3 and "the loss is nan" in output
    with pytest.raises(ModelError, match="epoch 1: the loss is nan"):
        made[0].fit(wild)


def test_where_data_cannot_be_written_the_stage_goes_on_by_itself(
    data: Data, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trainings(data, tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256, before[1]))
    try:
        train_in_parallel(made, data, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().out.startswith("2 trainings in parallel: ")
    assert not (tmp_path / FOLDER).exists() and not any(each.is_finished for each in made)
    assert same(made[0].fit(data)[0], trainings(data, tmp_path / "again")[0].fit(data)[0])


@pytest.mark.parametrize("count", ["1", ""])
def test_one_at_a_time_starts_no_process(
    count: str, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PARALLEL, count)
    train_in_parallel(trainings(data, tmp_path), data, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", ["0", "two", "65", "-1"])
def test_a_wrong_number_is_reported(wrong: str, data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARALLEL, wrong)
    with pytest.raises(ConfigError, match=f"^EDGEKIT_PARALLEL: got '{wrong}'; give a whole number from 1 to 64, or"):
        train_in_parallel(trainings(data, tmp_path), data, tmp_path)


def test_data_are_handed_on_whole_and_a_mapped_split_by_its_place(data: Data, tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((1000, 500), np.float32)
    np.save(tmp_path / "x.npy", x)
    whole = np.load(tmp_path / "x.npy", mmap_mode="r")
    train = Split(whole[10:500:2, :100], np.arange(245), np.arange(245), None)
    given = replace(data, train=train, members={"a": b"\xff"}, notes=("n",), input_path=({"step": "decode_csv"},))
    parallel_trainings.write_data(given, tmp_path / "data")
    assert sum(path.stat().st_size for path in (tmp_path / "data").iterdir()) < 20_000
    found = parallel_trainings.read_data(tmp_path / "data")
    for split in ("train", "calibration", "validation"):
        one, other = getattr(given, split), getattr(found, split)
        assert np.array_equal(one.x, other.x) and np.array_equal(one.y, other.y) and not other.x.flags.writeable
    assert found.train.groups is not None and found.train.starts is None and found.held_out is None
    named = ("classes", "kind", "digest", "notes", "members", "input_path", "task")
    assert [getattr(found, name) for name in named] == [getattr(given, name) for name in named]
