"""A whole run whose class of devices decides, from another folder, and its reproduction without any device."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgekit.core.run_folder import notebook_name
from tests.conftest import TINY
from tests.fleet.devices.rig import Rig, need_rig
from tests.stages.benchmark.devices import first_disturbed, slowed

pytestmark = [pytest.mark.fleet, pytest.mark.slow]
LIMIT_MS = 10.0


@dataclass(frozen=True)
class Finished:
    """A run that class pi4 decided, whose only device, d0, is slow with int8."""

    rig: Rig
    folder: Path
    printed: str

    @property
    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return found


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finished]:
    need_rig()
    folder = tmp_path_factory.mktemp("decided")
    with Rig(folder / "rig", 2) as rig:
        slowed(rig, 0, "int8,uint8", 0.02, first_disturbed(rig, 0))
        given = yaml.safe_load(TINY.read_text())
        given["budget"]["latency_p50_ms"] = LIMIT_MS
        given["benchmark"] |= {"where": "pi4", "hosts": "hosts.yaml"}
        config = folder / "mine" / "tiny.yaml"
        config.parent.mkdir()
        config.write_text(yaml.safe_dump(given))
        inventory = rig.inventory(d0={"class": "pi4"})
        inventory.rename(config.parent / "hosts.yaml")
        done = rig.edgekit("run", config, "--out", folder / "out", "-v", timeout_s=900)
        assert done.returncode == 0, done.stdout + done.stderr
        (config.parent / "hosts.yaml").unlink()
        yield Finished(rig, folder / "out" / "tiny", done.stdout + done.stderr)


def rows(finished: Finished) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in finished.result["variants"][1:]}


def test_the_limit_applies_to_the_device_and_the_report_says_so(finished: Finished) -> None:
    slow = [row for row in rows(finished).values() if row["reasons"] == ["p50 is over 10 ms on pi4"]]
    assert slow and all(row["target"] == "tflite" and row["precision"] == "int8" for row in slow)
    for row in slow:
        assert row["device"]["host"] == "d0" and row["device"]["p50_ms"] > LIMIT_MS > row["p50_ms"]
    assert finished.result["verdict"]["device"]["where"] == "pi4"


def test_every_decision_says_where_it_was_measured(finished: Finished) -> None:
    for decision in finished.result["decisions"]:
        assert (decision["where"], decision["host"]) == ("pi4", "d0")


def test_terminal_report_and_notebook_tell_the_machines_apart(finished: Finished) -> None:
    assert re.search(r"wins: p50 \S+ ms on d0 \(pi4\); on this machine \S+ ms; against", finished.printed)
    assert re.search(r"p50, ms . p50, ms .*\n.* on d0 . +here . speed-up", finished.printed)
    assert re.search(r"^ target .* p50 on d0 +speed-up here", finished.printed, re.MULTILINE)
    assert "Decided by the slowest device of class pi4, d0" in finished.printed
    page = (finished.folder / "report.html").read_text().replace("\xa0", " ")
    assert "p50, ms on d0" in page and "p50, ms here" in page and "latency, p50 of one call on d0 (pi4)" in page
    cells = (finished.folder / "notebooks" / notebook_name("benchmark")).read_text()
    assert "p50, ms on d0" in cells and "p50, ms on d0, decides" in cells


def test_a_device_that_was_disturbed_is_measured_again(finished: Finished) -> None:
    assert (finished.rig.device(0) / ".moods").read_text() == "", "both of its moods were used"
    assert "the measurement on d0 was noisy (it was 85 °C hot); measuring again" in finished.printed
    assert finished.result["devices"]["devices"][0]["disturbed"] == [], "the second time counts"


def test_nothing_that_was_timed_stays_on_the_device(finished: Finished) -> None:
    store = finished.rig.device(0) / ".edge" / "store"
    assert not store.exists() or not list(store.iterdir())


def test_what_is_measured_already_asks_for_no_inventory(finished: Finished) -> None:
    shutil.rmtree(finished.folder / "bundles")
    config = finished.folder.parents[1] / "mine" / "tiny.yaml"
    assert not config.with_name("hosts.yaml").exists()
    done = finished.rig.edgekit("run", config, "--out", finished.folder.parent, timeout_s=300)
    assert done.returncode == 0 and "benchmark: reused" in done.stdout, done.stdout + done.stderr


def test_it_is_reproduced_bit_for_bit_without_a_device(finished: Finished, tmp_path: Path) -> None:
    bundle = next((finished.folder / "bundles").glob("*.edge.zip"))
    finished.rig.stop_devices()
    done = finished.rig.edgekit("reproduce", bundle, "--out", tmp_path, timeout_s=900)
    assert done.returncode == 0 and "reproduced bit for bit" in done.stdout, done.stdout + done.stderr
    cells = next(tmp_path.rglob(notebook_name("benchmark"))).read_text()
    assert "as recorded by an earlier run" in cells and "as recorded on d0 (pi4)" in cells
    assert "this machine decided" not in cells and "would decide" not in cells
