"""A cache looked over: all damage is named and can be removed, old stages go without harm to younger ones."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.workbook.shared_cache import maintenance
from tests.conftest import run_edgekit
from tests.workbook.shared_cache.stages import opened, receive, seal

DAY_S = 86_400


@pytest.fixture
def filled(tmp_path: Path) -> tuple[Path, Artifact, Artifact]:
    """A cache with two stages that share their weights, and the executed notebook of the first."""
    first, second = seal(tmp_path / "a"), seal(tmp_path / "o", seed=2)
    receive(tmp_path / "a", first)
    cache, _ = opened(tmp_path / "cache")
    cache.push(first, tmp_path / "a")
    cache.push(second, tmp_path / "o")
    return tmp_path / "cache", first, second


def age(folder: Path, days: float, *parts: str) -> None:
    """Make the objects whose names have one of these parts older."""
    for path in folder.rglob("*"):
        if path.is_file() and any(part in path.name for part in parts):
            os.utime(path, (time.time() - days * DAY_S,) * 2)


def test_a_whole_cache_is_whole(filled: tuple[Path, Artifact, Artifact]) -> None:
    report = maintenance.check(opened(filled[0])[0])
    assert (report.entries, report.damaged, report.unused) == (3, {}, [])
    assert report.blobs == len(list((filled[0] / "cas").iterdir()))
    assert report.bytes == sum(path.stat().st_size for path in (filled[0] / "cas").iterdir())


@pytest.mark.parametrize("command", [("check",), ("prune", "--older-than", "1")], ids=lambda words: words[0])
def test_a_folder_that_is_not_there_is_no_whole_cache(command: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = command
    ended = run_edgekit("cache", name, str(tmp_path / "misspelt"), *options)
    assert ended.returncode == 2
    assert "misspelt: no such folder; name a folder that runs have filled" in ended.stderr


def test_a_damaged_object_is_named_with_all_that_needs_it(filled: tuple[Path, Artifact, Artifact]) -> None:
    folder, first, second = filled
    blob = folder / "cas" / first.files["model/weights"]
    blob.write_bytes(b"other")
    report = maintenance.check(opened(folder)[0])
    assert report.damaged[f"cas/{blob.name}"] == "does not match its digest"
    needing = {path.removeprefix("keys/")[:64] for path in report.damaged if path.startswith("keys/")}
    assert needing == {first.key, second.key}
    assert len(report.damaged) == 3


def test_what_is_removed_can_be_put_there_again(filled: tuple[Path, Artifact, Artifact], tmp_path: Path) -> None:
    folder, first, _ = filled
    (folder / "cas" / first.files["model/weights"]).write_bytes(b"other")
    maintenance.check(opened(folder)[0], remove=True)
    cache, lines = opened(folder)
    assert not cache.pull(first.key, tmp_path / "b", "prune")
    cache.push(first, tmp_path / "a")
    assert cache.pull(first.key, tmp_path / "b", "prune")
    assert artifacts.is_intact(tmp_path / "b" / "prune")
    assert lines == []
    assert maintenance.check(opened(folder)[0]).damaged == {}


def test_old_stages_go_and_what_younger_ones_need_stays(
    filled: tuple[Path, Artifact, Artifact], tmp_path: Path
) -> None:
    folder, first, second = filled
    age(folder, 10, "")
    age(folder, 0, second.key)
    report = maintenance.prune(opened(folder)[0], 5)
    cache, lines = opened(folder)
    assert not cache.pull(first.key, tmp_path / "b", "prune")
    assert cache.pull(second.key, tmp_path / "b", "prune")
    assert lines == []
    after = maintenance.check(opened(folder)[0])
    assert (after.entries, after.damaged, after.unused) == (1, {}, [])
    assert (report.entries, report.blobs) == (1, after.blobs)


def test_objects_of_a_writer_at_work_stay_and_those_of_a_killed_one_go(
    filled: tuple[Path, Artifact, Artifact],
) -> None:
    folder = filled[0]
    for name in (".tmp-1-new", ".tmp-1-old", "e" * 64):
        (folder / "cas" / name).write_bytes(b"half")
    age(folder, 10, "old")
    maintenance.prune(opened(folder)[0], 5)
    assert (folder / "cas" / ".tmp-1-new").is_file()
    assert (folder / "cas" / ("e" * 64)).is_file()
    assert not (folder / "cas" / ".tmp-1-old").exists()


def test_the_command_names_damage_and_ends_with_8(filled: tuple[Path, Artifact, Artifact]) -> None:
    folder, first, _ = filled
    (folder / "cas" / first.files["model/weights"]).write_bytes(b"other")
    done = run_edgekit("cache", "check", str(folder))
    assert done.returncode == 8
    assert f"damaged    cas/{first.files['model/weights']}: does not match" in done.stdout
    assert "3 damaged; remove them with" in done.stderr
    assert run_edgekit("cache", "check", str(folder), "--remove").returncode == 0
    done = run_edgekit("cache", "prune", str(folder), "--older-than", "1")
    assert done.returncode == 0
    assert "removed    0 objects" in done.stdout


def test_a_store_that_fails_ends_with_7_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    done = run_edgekit("cache", "check", str(tmp_path / "cache"))
    assert done.returncode == 7
    assert done.stderr.strip() == f"edgekit: cache {tmp_path / 'cache'}: not a directory"
