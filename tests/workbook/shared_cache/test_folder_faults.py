"""A folder that is full, read-only, hanging or without links: one line, and the run has lost nothing."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.run_folder import working_folder
from edgekit.workbook.shared_cache import transfer
from tests import requirements
from tests.workbook.shared_cache.stages import opened, receive, seal

MEGABYTE = 1 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    requirements.mount_here()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be longer than 256 kB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE // 4, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_takes_nothing_more_and_leaves_no_part(disk: Path, tmp_path: Path) -> None:
    small, large = seal(tmp_path / "a"), seal(tmp_path / "a", "quantize", weights=bytes(MEGABYTE))
    cache, lines = opened(disk)
    cache.push(small, tmp_path / "a")
    cache.push(large, tmp_path / "a")
    cache.push(seal(tmp_path / "o", seed=2), tmp_path / "o")
    assert lines == [
        f"cache {disk}: quantize is not written to it: no space left on device; the run goes on and puts nothing "
        "into it"
    ]
    assert list(disk.rglob(".tmp-*")) == []
    assert cache.pull(small.key, tmp_path / "b", "prune")
    assert not cache.pull(large.key, tmp_path / "b", "quantize")
    assert artifacts.is_intact(large.path)


def test_a_disk_that_is_full_here_leaves_the_run_as_it_was(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    artifact = seal(tmp_path / "a", weights=bytes(MEGABYTE))
    receive(tmp_path / "a", artifact)
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    before = seal(tmp_path / "b", seed=2)
    request.getfixturevalue("small_files")
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert artifacts.load(tmp_path / "b" / "prune").digest == before.digest
    assert artifacts.is_intact(tmp_path / "b" / "prune")
    assert not working_folder(tmp_path / "b", "prune").exists()
    assert len(lines) == 1
    assert "File too large" in lines[0]


@pytest.mark.usefixtures("small_files")
def test_a_limit_on_files_counts_as_full(tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    artifact = seal(tmp_path / "a", weights=bytes(MEGABYTE // 2))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MEGABYTE // 4, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert len(lines) == 1
    assert lines[0].endswith("file too large; the run goes on and puts nothing into it")
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_a_read_only_folder_is_read(disk: Path, tmp_path: Path) -> None:
    artifact, other = seal(tmp_path / "a"), seal(tmp_path / "o", seed=2)
    opened(disk)[0].push(artifact, tmp_path / "a")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    cache, lines = opened(disk)
    cache.push(other, tmp_path / "o")
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert lines == [
        f"cache {disk}: prune is not written to it: read-only file system; the run goes on and puts nothing into it"
    ]


def test_a_folder_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody ever writes to a pipe that stands where an object should."""
    monkeypatch.setattr(transfer, "ANSWER_LIMIT_S", 1.0)
    monkeypatch.setattr(transfer, "ANSWER_LIMIT_S", 1.0)
    artifact = seal(tmp_path / "a")
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    (entry,) = (tmp_path / "cache" / "keys").iterdir()
    entry.unlink()
    os.mkfifo(entry)
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert lines == [
        f"cache {tmp_path / 'cache'}: prune is not read from it: no answer within 1 s; the run goes on without this "
        "cache"
    ]


def test_a_cache_that_is_no_folder_is_reported(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a")
    (tmp_path / "cache").write_text("a file")
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert len(lines) == 1
    assert "not a directory; the run goes on without this cache" in lines[0]


def test_a_file_system_without_links_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    artifact = seal(tmp_path / "a")
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert artifacts.is_intact(tmp_path / "b" / "prune")
    assert lines == []


def test_others_may_read_what_one_wrote(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        artifact = seal(tmp_path / "a")
        opened(tmp_path / "cache")[0].push(artifact, tmp_path / "a")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "cache").rglob("*") if path.is_file()}
    assert modes == {0o644}
