"""Files of a home that hold anything: each command says what it makes of them, and no start ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.device.releases.device import Device
from tests.device.releases.test_refused import damage
from tests.device.releases.test_signed import bundle_path, confirm
from tests.device.trust.workstation import LABEL, Workstation

pytestmark = pytest.mark.processes

DEEP = "[" * 100_000
TRIALS = [
    '{"release": 2, "tries": 1e999, "from": 1}',
    '{"release": 1e999, "tries": 1, "from": 1}',
    '{"release": 2, "tries": 1, "from": []}',
    '{"release": 2, "tries": 1, "from": 1, "outages": "x", "running": true}',
    '{"release": 2, "tries": 1, "from": 1, "outages": NaN, "running": "yes", "boot": {}}',
    '{"release": true, "tries": -1, "from": -1}',
    '{"release": 2, "tries": 1' + "0" * 400 + "}",
    DEEP,
]
FLOORS = ['{"tiny": 3}', '{"tiny": null}', '{"tiny": {"epoch": "x", "counter": []}}', "", '{"tiny": {"ep', "[1]", DEEP]
RECORDS = ['{"from": []}', '{"from": 1e999}', '{"trusted": 3, "files": [1]}', '{"why": {}, "files": {"a": []}}', DEEP]


def works(on: Device) -> None:
    """Every command that a device gives itself ends without a traceback."""
    for words in (["status"], ["status", "--json"], ["gc"], ["boot"], ["rollback", "--release", 99]):
        done = on.run(*words)
        assert "Traceback" not in done.stderr and done.returncode in (0, 4, 8), (words, done.stderr)


@pytest.mark.parametrize("text", TRIALS)
def test_a_trial(text: str, empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    empty.install(valid_bundles["2.0.0"])
    (empty.root / "trial.json").write_text(text)
    works(empty)
    starts = [empty.do("boot").split("/")[-2] for _ in range(3)]
    assert starts[-1] == "1" and empty.status()["state"] == "confirmed" and empty.fault() == ""


@pytest.mark.parametrize("text", FLOORS)
def test_a_floor_is_made_again_of_what_the_releases_say(text: str, signed: Device, workstation: Workstation) -> None:
    """Also where the highest was taken back, and even removed since."""
    for number in (1, 2):
        confirm(signed, bundle_path(workstation, number))
    signed.do("rollback")
    for _ in range(2):
        (signed.root / "floor.json").write_text(text)
        works(signed)
        assert signed.status()["floor"] == {LABEL: {"epoch": 1, "counter": 20}}
        workstation.sign(path=bundle_path(workstation, 1), counter=19)
        assert "counter 19 is older than epoch 1, counter 20" in signed.refused(
            8, "install", bundle_path(workstation, 1)
        )
        signed.do("gc", "--keep", 0)
        assert [each["release"] for each in signed.status()["releases"]] == [1]
    confirm(signed, bundle_path(workstation, 3))
    assert json.loads((signed.root / "floor.json").read_text()) == {LABEL: {"epoch": 1, "counter": 30}}


def test_a_floor_that_is_lost_with_a_release_lets_nothing_in(signed: Device, workstation: Workstation) -> None:
    for number in (1, 2):
        confirm(signed, bundle_path(workstation, number))
    signed.do("rollback")
    (signed.root / "releases" / "2" / "install.json").write_text("{")
    (signed.root / "floor.json").write_text('{"tiny"')
    works(signed)
    workstation.sign(path=bundle_path(workstation, 1), counter=11)
    assert "floor.json is damaged" in signed.refused(8, "install", bundle_path(workstation, 1))
    (signed.root / "floor.json").unlink()
    confirm(signed, bundle_path(workstation, 1))


@pytest.mark.parametrize("name", ["install.json", "confirmed.json", "proof.json", "failed.json"])
@pytest.mark.parametrize("text", RECORDS)
def test_a_record(name: str, text: str, signed: Device, workstation: Workstation) -> None:
    confirm(signed, bundle_path(workstation, 1))
    (signed.root / "releases" / "1" / name).write_text(text)
    works(signed)
    confirm(signed, bundle_path(workstation, 2))
    assert signed.do("boot").strip().endswith("releases/2/bundle.edge.zip") or name == "failed.json"


def test_words_that_would_order_a_terminal_about_are_one_line(empty: Device, valid_bundles: dict[str, Path]) -> None:
    empty.confirmed(valid_bundles["1.0.0"])
    empty.install(valid_bundles["2.0.0"])
    output = empty.do("rollback", "--why", "hot\n\x1b[2J\u202egone")
    assert output.splitlines()[-1] == "release 2 failed: hot  [2J gone" and "\x1b" not in empty.do("status")
    damage(empty, 1)
    assert len(empty.do("status").splitlines()) == 3
