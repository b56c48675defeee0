"""`load("current")`: the release that is confirmed, and whether another one is by now."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgekit.device.releases import current_release
from edgekit.device.releases.current_release import Release
from edgekit.runner import load
from edgekit.runner.errors import ReleaseError, TrustError
from tests.device.releases.device import Device
from tests.runner.conftest import reference, samples

LOAD = """
from edgekit.runner import load
model = load("current", trial=False)
print(model.manifest.version, model.release.number, model.release.changed())
"""


@pytest.fixture
def here(empty: Device, valid_bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Device:
    """A device that this process is on, with a confirmed release."""
    monkeypatch.setenv("EDGERUN_HOME", str(empty.root))
    empty.confirmed(valid_bundles["1.0.0"])
    return empty


@pytest.mark.parametrize("trial", [True, False])
def test_it_answers_with_the_confirmed_release(trial: bool, here: Device) -> None:
    model = load("current", trial=trial)
    image = samples()[0]
    assert np.allclose(model.execute(model.prepare(image)), reference(image[None])[0], atol=1e-4)
    assert (model.manifest.version, model.release.number, model.release.changed()) == ("1.0.0", 1, False)


def test_a_program_learns_of_a_new_release_when_it_is_confirmed(here: Device, valid_bundles: dict[str, Path]) -> None:
    model = load("current", trial=False)
    here.install(valid_bundles["2.0.0"])
    assert not model.release.changed() and load("current", trial=False).manifest.version == "1.0.0"
    here.do("confirm")
    assert model.release.changed()
    model = load("current", trial=False)
    assert model.manifest.version == "2.0.0"
    here.do("rollback")
    assert model.release.changed() and load("current", trial=False).manifest.version == "1.0.0"


def test_a_program_that_boot_starts_gets_the_one_on_trial(here: Device, valid_bundles: dict[str, Path]) -> None:
    here.install(valid_bundles["2.0.0"])
    assert here.do("boot", "--", sys.executable, "-c", LOAD).split() == ["2.0.0", "2", "False"]
    alone = subprocess.run(
        [sys.executable, "-c", LOAD], env=here.variables(), capture_output=True, text=True, check=True
    )
    assert alone.stdout.split() == ["1.0.0", "1", "False"]


def test_a_release_on_trial_that_is_taken_back_has_changed(
    here: Device, valid_bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    here.install(valid_bundles["2.0.0"])
    monkeypatch.setenv(current_release.PROBATION_VARIABLE, "2")
    model = load("current", trial=False)
    assert model.release.number == 2 and not model.release.changed()
    here.do("rollback")
    assert model.release.changed()
    assert load("current", trial=False).manifest.version == "1.0.0", "a variable that is left over is no harm"


def test_a_way_back_at_the_same_moment_gives_no_release_that_failed(
    here: Device, valid_bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is read first: the pointer, whether there is a trial, what was confirmed."""
    for name in ("current_number", "read_probation", "is_confirmed", "previous_release", "has_failed"):
        number = here.install(valid_bundles["2.0.0"])
        read = getattr(current_release.records, name)

        def late(*values: object, read: Callable[..., object] = read, name: str = name) -> object:
            found = read(*values)
            monkeypatch.setattr(current_release.records, name, read)
            here.do("rollback")
            return found

        monkeypatch.setattr(current_release.records, name, late)
        assert current_release.find_release().number == 1, (name, number)
        monkeypatch.undo()
        monkeypatch.setenv("EDGERUN_HOME", str(here.root))
        here.run("rollback", "--release", number)


def test_what_a_kill_leaves_of_a_way_back_gives_the_one_before(here: Device, valid_bundles: dict[str, Path]) -> None:
    here.confirmed(valid_bundles["2.0.0"])
    (here.root / "releases" / "2" / "failed.json").write_text('{"why": "a kill"}\n')
    assert load("current", trial=False).release.number == 1


def test_a_release_that_nobody_confirmed_is_no_current_one(here: Device, valid_bundles: dict[str, Path]) -> None:
    (here.root / "releases" / "1" / "confirmed.json").unlink()
    with pytest.raises(ReleaseError, match="no release is confirmed here"):
        load("current")


def test_without_one_it_says_so(empty: Device, valid_bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGERUN_HOME", str(empty.root))
    for _ in range(2):
        with pytest.raises(ReleaseError, match="no release is confirmed here"):
            load("current")
        if not empty.root.exists():
            empty.install(valid_bundles["1.0.0"])


def test_a_changed_bundle_is_refused_at_every_load(here: Device) -> None:
    path = Path(load("current", trial=False).release.path)
    path.chmod(0o600)
    content, mended = path.read_bytes(), 0
    for place in range(0, len(content), 97):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(TrustError, match="its digest has changed since it was installed"):
            load("current", trial=False)
        mended += 1
    path.write_bytes(content)
    assert load("current", trial=False).release.number == 1 and mended > 40


def test_what_was_hashed_is_what_runs(
    here: Device, valid_bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file in its place, the moment after it was opened, is not read."""
    release = current_release.find_release()
    opened = current_release.os.fdopen

    def swapped(*arguments: object) -> object:
        path = Path(release.path)
        path.unlink()
        path.write_bytes(valid_bundles["2.0.0"].read_bytes())
        return opened(*arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(current_release.os, "fdopen", swapped)
    assert load("current", trial=False).manifest.version == "1.0.0"


def test_what_was_hashed_is_what_is_tried(
    here: Device, valid_bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file in its place before the processes that try the interpreters have opened it: none of them runs it."""
    read = current_release.Release.read

    def swapped(release: Release) -> bytes:
        data = read(release)
        Path(release.path).unlink()
        Path(release.path).write_bytes(valid_bundles["2.0.0"].read_bytes())
        return data

    monkeypatch.setenv("XDG_CACHE_HOME", str(here.root.with_name("cache")))  # nothing was chosen before
    monkeypatch.setattr(current_release.Release, "read", swapped)
    with pytest.raises(TrustError, match="the file has changed since it was first read"):
        load("current")
    assert not list(here.root.with_name("cache").rglob("*.json")), "and nothing was chosen by it"


def test_a_bundle_called_current_is_a_file_like_any_other(
    valid_bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "current").write_bytes(valid_bundles["3.0.0"].read_bytes())
    model = load("./current", trial=False)
    assert model.manifest.version == "3.0.0" and model.release is None


def test_a_bundle_of_ones_own_never_looks_at_releases(valid_bundles: dict[str, Path]) -> None:
    path = str(valid_bundles["1.0.0"])
    code = f"import sys; from edgekit.runner import load; load({path!r}, trial=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [name for name in done.stdout.split() if "edgekit.device.releases" in name]


def test_a_link_that_is_raced_into_its_place_is_never_what_runs(here: Device, valid_bundles: dict[str, Path]) -> None:
    """Somebody puts a link to another bundle there and the right file back, as fast as they can."""
    path, other = Path(current_release.find_release().path), here.root / "other.edge.zip"
    right, aside, ended = path.read_bytes(), path.with_name("aside"), threading.Event()
    other.write_bytes(valid_bundles["2.0.0"].read_bytes())

    def race() -> None:
        while not ended.is_set():
            for put in (lambda: aside.symlink_to(other), lambda: aside.write_bytes(right)):
                put()
                os.replace(aside, path)

    racer = threading.Thread(target=race)
    racer.start()
    found = Counter[str]()
    try:
        while (found["1.0.0"] < 20 or found["refused"] < 20) and found.total() < 20_000:
            try:
                found[load("current", trial=False).manifest.version] += 1
            except TrustError:
                found["refused"] += 1
    finally:
        ended.set()
        racer.join()
    assert set(found) == {"1.0.0", "refused"} and min(found.values()) >= 20, found
