"""Checks of a scheduler or a worker before anything is sent: addresses, no Dask, nobody there, foreigners."""

from __future__ import annotations

import socket
import subprocess
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import pytest

from edgekit.core.config import STAGES
from edgekit.core.errors import ConfigError
from edgekit.workbook.workers import machine_facts, open_pool
from edgekit.workbook.workers.scheduler import parse_address
from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("on", "address"),
    [
        ("dask://node1:8786", "tcp://node1:8786"),
        ("tcp://10.0.0.1:8786/", "tcp://10.0.0.1:8786"),
        ("tls://node1:8786", "tls://node1:8786"),
        ("dask://[::1]:8786", "tcp://[::1]:8786"),
    ],
)
def test_an_address_is_understood(on: str, address: str) -> None:
    assert parse_address(on) == address


@pytest.mark.parametrize(
    "on",
    [
        "",
        "node1:8786",
        "dask://node1",
        "dask://:8786",
        "http://node1:8787/status",
        "dask://node1:70000",
        "dask://a b:1",
    ],
)
def test_another_address_is_refused_in_a_line(on: str) -> None:
    with pytest.raises(ConfigError) as raised, open_pool(on=on):
        pass
    assert str(raised.value) == f"--on: got {on!r}; use dask://HOST:PORT, the address that `dask scheduler` shows"


def test_without_dask_the_extra_is_named(tmp_path: Path) -> None:
    """A Python whose path holds everything but Dask."""
    (tmp_path / "distributed.py").write_text("raise ImportError('no module')")
    code = "from edgekit.workbook.workers import open_pool\nwith open_pool(on='dask://127.0.0.1:8786'): pass"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    words = "ConfigError: --on dask://127.0.0.1:8786: needs Dask: pip install distributed"
    assert ended.stderr.strip().splitlines()[-1].endswith(words)


def test_a_port_that_nobody_listens_at_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgekit.workbook.workers.scheduler.SCHEDULER_LIMIT_S", 1.0)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        on = f"dask://127.0.0.1:{free.getsockname()[1]}"
    with (
        pytest.raises(ConfigError, match=rf"--on {on}: no scheduler answers there within 1 s") as raised,
        open_pool(on=on),
    ):
        pass
    assert "\n" not in str(raised.value) and str(raised.value).endswith("start one with `dask scheduler`")


def test_a_machine_does_not_differ_from_itself() -> None:
    assert machine_facts.differences(machine_facts.local_facts(), machine_facts.local_facts()) == []


def test_each_difference_is_named_with_both_values() -> None:
    local = {**machine_facts.local_facts(), "instructions": "avx avx2 fma"}
    other = deepcopy(local)
    other |= {"python": "3.10.0", "machine": "aarch64", "instructions": "avx avx512f", "code": "abc"}
    other["libraries"] |= {"torch": "1.0", "openvino": None}
    result = machine_facts.differences(other, local)
    assert result == [
        f"edgekit's code abc, here {local['code']}",
        f"Python 3.10.0, here {local['python']}",
        f"the architecture aarch64, here {local['machine']}",
        "instruction sets without avx2 fma, with avx512f in addition",
        f"openvino missing, here {local['libraries']['openvino']}",
        f"torch 1.0, here {local['libraries']['torch']}",
    ]
    assert machine_facts.summarize(result).endswith("; 3 more")


def test_a_folder_that_a_worker_does_not_see_is_a_difference(tmp_path: Path) -> None:
    (tmp_path / "probe").write_text("1")
    local = machine_facts.local_facts(str(tmp_path / "probe"))
    assert machine_facts.differences({**local, "probe": None}, local) == [
        "it cannot read the folder that the jobs write to"
    ]


def test_every_library_of_a_stages_key_is_compared() -> None:
    for stage in STAGES:
        names = getattr(import_module(f"edgekit.stages.{stage}.config"), "LIBRARIES")  # noqa: B009
        assert set(names) <= set(machine_facts.LIBRARIES), stage
