"""The device decides: variants are timed on real devices behind SSH, and its winners are followed and replayed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts, replay
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ConfigError, EdgekitError
from edgekit.fleet.devices import remote_benchmark
from edgekit.report import checks
from edgekit.report.sections import devices as devices_section
from edgekit.workbook.stage import open_stage
from tests.conftest import TINY, FinishedRun
from tests.fleet.devices.rig import Rig, address
from tests.stages.benchmark.devices import slowed

pytestmark = pytest.mark.fleet

HERE = {"rounds": 10, "calls_per_round": 5, "warmup_per_round": 1, "most_rounds": 10, "load_s": 0.0}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with Rig(tmp_path_factory.mktemp("rig") / "rig", 3) as started:
        yield started


@pytest.fixture
def workstation(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setenv("HOME", str(rig.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setattr(
        remote_benchmark, "PAUSES_S", (0.1,)
    )  # these devices share one machine, so they are always disturbed
    return rig


def run(tiny_run: FinishedRun, tmp_path: Path, where: str, hosts: Path, **options: Any) -> Artifact:
    """The stage on a copy of the shared run."""
    out = tmp_path / "out"
    if not out.exists():
        shutil.copytree(tiny_run.folder, out / "tiny")
    given = {"config": str(TINY), "out": str(out), "where": where, "hosts": str(hosts), **HERE, **options}
    return open_stage("benchmark", given).run()


def of_target(artifact: Artifact, target: str) -> dict[str, Any]:
    return {row["name"]: row for row in artifact.metrics["rows"] if row["target"] == target}


def test_a_class_of_devices_changes_the_winner_and_that_is_replayed(
    tiny_run: FinishedRun, workstation: Rig, tmp_path: Path
) -> None:
    here = artifacts.load(tiny_run.folder / "benchmark")
    won = here.metrics["winners"]["tflite"]
    precision = of_target(here, "tflite")[won]["precision"]
    slowed(workstation, 0, "int8,uint8" if precision == "int8" else "float32", 0.02)
    hosts = workstation.inventory(d0={"class": "pi4"})
    found = run(tiny_run, tmp_path, "pi4", hosts)
    other = found.metrics["winners"]["tflite"]
    assert other != won, "on this machine the other one wins"
    devices = found.metrics["devices"]
    assert (devices["where"], devices["slowest"], len(devices["devices"])) == ("pi4", "d0", 1)
    there = {row["name"]: row for row in devices["devices"][0]["variants"]}
    assert there[won]["p50_ms"] > 15 > there[other]["p50_ms"]
    assert of_target(found, "tflite")[won]["p50_ms"] < 15, "this machine's times stay"
    decision = next(each for each in found.metrics["decisions"] if each["decision"] == "winner of tflite")
    assert {row["name"]: row["p50_ms"] for row in decision["candidates"]}[other] == there[other]["p50_ms"]
    inside = {row["name"] for row in found.metrics["rows"][1:] if not row["reasons"]}
    assert inside <= set(there), "all inside the other limits are timed there"
    text = str(devices_section.table(found))
    assert "d0, decides" in text and "p50, ms here" in text and other in text

    measured = json.loads(found.file("decision.json").read_text())["measured"]
    replay.write(tmp_path / "out" / "tiny", {"benchmark": measured})
    shutil.rmtree(tmp_path / "out" / "tiny" / "benchmark")
    hosts.unlink()
    again = run(tiny_run, tmp_path, "pi4", hosts)
    assert again.metrics["winners"] == found.metrics["winners"] and again.digest == found.digest
    assert again.metrics["devices"] == devices, (
        "the devices are not measured again, and their earlier figures are reported"
    )
    assert all(each["replayed"] and each["chosen"] == each["today"] for each in again.metrics["decisions"])
    assert "as recorded by an earlier run" in str(devices_section.table(again).title)


def test_where_no_variant_can_be_sent_nothing_is_too_slow(
    tiny_run: FinishedRun, workstation: Rig, tmp_path: Path
) -> None:
    hosts = workstation.inventory(d0={"class": "pi4", "port": 1})
    settings = "budget.accuracy_drop_pp=0 budget.latency_p50_ms=0.0001"
    found = run(tiny_run, tmp_path, "pi4", hosts, settings=settings)
    measured = json.loads(found.file("decision.json").read_text())["measured"]
    assert measured["too_slow"] == [] and found.metrics["devices"]["devices"] == []
    assert not [reason for row in found.metrics["rows"][1:] for reason in row["reasons"] if "p50" in reason]
    assert (
        devices_section.table(found).title
        == "class pi4: nothing was sent there, because no variant is inside the other limits"
    )
    nearest = checks.missed_message(found.metrics["nearest_miss"], found.metrics["budget"])
    assert "of p50" not in nearest and "on this machine" in nearest


def test_the_slowest_device_of_the_class_decides(tiny_run: FinishedRun, workstation: Rig, tmp_path: Path) -> None:
    slowed(workstation, 1, "float32,int8,uint8", 0.01)
    hosts = workstation.inventory(d1={"class": "box"}, d2={"class": "box"}, d0={"class": "other"})
    found = run(tiny_run, tmp_path, "box", hosts)
    devices = found.metrics["devices"]
    assert [each["host"] for each in devices["devices"]] == ["d1", "d2"] and devices["slowest"] == "d1"
    slow, fast = ({row["name"]: row["p50_ms"] for row in each["variants"]} for each in devices["devices"])
    tflite = set(of_target(found, "tflite")) & set(slow)
    assert tflite and all(slow[name] > fast[name] for name in tflite)


def test_a_variant_that_is_over_the_limit_on_any_device_is_too_slow(
    tiny_run: FinishedRun, workstation: Rig, tmp_path: Path
) -> None:
    slowed(workstation, 0, "float32", 0.03)
    hosts = workstation.inventory(d0={"class": "pi4"})
    found = run(tiny_run, tmp_path, "pi4", hosts, settings="budget.latency_p50_ms=20")
    slow = json.loads(found.file("decision.json").read_text())["measured"]["too_slow"]
    floats = {name for name, row in of_target(found, "tflite").items() if row["precision"] in ("fp32", "fp16", "w8")}
    timed = {row["name"] for row in found.metrics["devices"]["devices"][0]["variants"]}
    assert slow and set(slow) == floats & timed


def test_faults_of_devices_are_one_line_and_leave_nothing(
    tiny_run: FinishedRun, workstation: Rig, tmp_path: Path
) -> None:
    hosts = workstation.inventory()
    with pytest.raises(ConfigError, match=r"benchmark.where: 'bax': .*hosts.yaml has no host of that class.*box"):
        run(tiny_run, tmp_path, "bax", hosts)
    with pytest.raises(ConfigError, match="no such"):
        run(tiny_run, tmp_path, "box", tmp_path / "none.yaml")
    workstation.forget(2)
    try:
        with pytest.raises(EdgekitError, match=r"d2: .*host key .* is not known") as caught:
            run(tiny_run, tmp_path, "box", hosts)
    finally:
        workstation.know((address(2), workstation.port))
    assert "\n" not in str(caught.value)
    assert (
        artifacts.load(tmp_path / "out" / "tiny" / "benchmark").digest
        == artifacts.load(tiny_run.folder / "benchmark").digest
    ), "what was there stays"


def test_a_device_that_answers_otherwise_is_not_timed(tiny_run: FinishedRun, workstation: Rig, tmp_path: Path) -> None:
    folder = workstation.device(0) / "wrong"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import ai_edge_litert.interpreter as litert\n"
        "get = litert.Interpreter.get_tensor\n"
        "litert.Interpreter.get_tensor = lambda self, index: get(self, index) * 0\n"
    )
    workstation.setting(0, f"export PYTHONPATH={folder}")
    with pytest.raises(EdgekitError, match=r"d0: .*does not give the golden outputs on this device") as caught:
        run(tiny_run, tmp_path, "pi4", workstation.inventory(d0={"class": "pi4"}))
    assert not re.search(r"Traceback", str(caught.value))
