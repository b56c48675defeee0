"""How many processes train: `--processes` and torchrun are held to the shares before anything runs."""

from __future__ import annotations

import os

import pytest

from edgekit.cli.run import training_processes
from edgekit.core.errors import ConfigError
from edgekit.training.data_parallel.environment import PROCESSES, process_count
from tests.conftest import TINY, run_edgekit


def test_more_processes_than_shares_are_refused_in_one_line(tmp_path) -> None:
    ended = run_edgekit("run", str(TINY), "--out", str(tmp_path), "--processes", "4")
    assert ended.returncode == 2
    assert ended.stderr == (
        "edgekit: --processes and training.shares disagree: got 4 processes and 1 shares, but each process needs a "
        "share; "
        "set training.shares=4, or start at most 1\n"
    )


def test_kernels_inherit_the_number_and_it_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESSES, "2")
    with training_processes(4, 4) as is_first:
        assert is_first and process_count() == 4
    with training_processes(None, 4):
        assert process_count() == 2
    assert os.environ[PROCESSES] == "2"


@pytest.mark.parametrize("message", ["0", "-1", "two", "1.5"])
def test_a_number_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    monkeypatch.setenv(PROCESSES, message)
    with pytest.raises(ConfigError, match=f"^EDGEKIT_PROCESSES: got {message!r}; set it to a number of processes"):
        process_count()
