"""Splits of memory maps: large ones stay on disk, small ones come into memory, and the values are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import ConfigError, ResourceError
from edgekit.data import Data, Split, load, memory_map, parse
from edgekit.data.image_cache import new_entry, open_entry
from tests.data.sources.test_webdataset import pictured, shard

ROWS, SIDE = 3000, 400


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """A map of 3000 rows of 1.6 kB; whatever is above 1 MB stays on disk."""
    monkeypatch.setenv(memory_map.LIMIT_VARIABLE, "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).random((ROWS, SIDE), np.float32))
    found: np.ndarray = np.load(path, mmap_mode="r")
    return found


def is_mapped(x: np.ndarray) -> bool:
    return isinstance(x, np.memmap) and not x.flags.writeable


def test_a_large_part_is_a_map_and_a_small_one_is_not(rows: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(ROWS)
    for count, uses_map in ((2500, True), (100, False)):
        taken = memory_map.take(rows, order[:count])
        assert np.array_equal(taken, rows[order[:count]]) and taken.dtype == rows.dtype
        assert (isinstance(taken, np.memmap) and Path(str(taken.filename)).name == "samples.npy") is uses_map


def test_arrays_in_memory_stay_there(rows: np.ndarray, tmp_path: Path) -> None:
    taken = memory_map.take(np.array(rows), np.arange(ROWS))
    assert not isinstance(taken, np.memmap) and not (tmp_path / "home").exists()


def test_what_was_taken_is_taken_from_and_joined_again(rows: np.ndarray) -> None:
    split = Split(rows, np.arange(ROWS))
    odd = split.take(np.arange(1, ROWS, 2))
    again = odd.take(np.arange(len(odd))[::-1])
    both = again.concatenate(Split(rows[:800], np.arange(800)))
    assert all(map(is_mapped, (odd.x, again.x, both.x)))
    assert np.array_equal(both.x, rows[both.y]) and len(both) == 2300
    mixed = Split(np.array(rows[:5]), np.arange(5)).concatenate(odd)
    assert is_mapped(mixed.x) and np.array_equal(mixed.x, rows[mixed.y])


def test_a_part_of_a_map_is_another_than_the_whole(rows: np.ndarray) -> None:
    """What names the rows in the cache knows where in the file they begin."""
    order = np.arange(1000)
    assert np.array_equal(memory_map.take(rows[500:], order), rows[500:1500])
    assert np.array_equal(memory_map.take(rows, order), rows[:1000])
    assert np.array_equal(memory_map.take(rows[:, :200][::2], np.arange(1400)), rows[:2800:2, :200])


def test_it_is_written_once_and_made_anew_where_it_is_damaged(rows: np.ndarray) -> None:
    order = np.random.default_rng(1).permutation(ROWS)
    path = Path(str(memory_map.take(rows, order).filename))
    written = path.stat().st_mtime_ns
    assert Path(str(memory_map.take(rows, order).filename)).stat().st_mtime_ns == written
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.unlink()
    path.write_bytes(content)
    assert np.array_equal(memory_map.take(rows, order), rows[order])


def test_another_file_of_the_same_name_is_another_entry(rows: np.ndarray, tmp_path: Path) -> None:
    order = np.arange(ROWS)
    before = np.array(memory_map.take(rows, order))
    (tmp_path / "rows.npy").unlink()
    np.save(tmp_path / "rows.npy", before + 1)
    assert np.array_equal(memory_map.take(np.load(tmp_path / "rows.npy", mmap_mode="r"), order), before + 1)


def test_a_wrong_limit_is_reported(monkeypatch: pytest.MonkeyPatch, rows: np.ndarray) -> None:
    monkeypatch.setenv(memory_map.LIMIT_VARIABLE, "2 GB")
    with pytest.raises(
        ConfigError, match=r"^EDGEKIT_SPLIT_MB: got '2 GB'; give a whole number of megabytes, or unset it$"
    ):
        memory_map.take(rows, np.arange(ROWS))


def test_a_full_disk_in_the_cache_is_a_resource_error(rows: np.ndarray, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        ResourceError, match=r"^data\.cache: cannot write to .*; free some space there, or set data\.cache"
    ):
        memory_map.take(rows, np.arange(ROWS))


def divided(tmp_path: Path, cache: str = "cache") -> Data:
    options = {"cache": str(tmp_path / cache), "size": 24, "calibration_samples": 40, "split_seed": 3}
    return load(parse({"source": "webdataset", "path": str(tmp_path / "shards"), **options}))


def test_the_same_samples_in_the_same_order_as_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but where the bytes lie differs, so neither does any weight that is trained on them."""
    for number in range(3):
        shard(tmp_path / "shards" / f"{number}.tar", pictured(300 * number, 300))
    whole = divided(tmp_path)
    monkeypatch.setenv(memory_map.LIMIT_VARIABLE, "0")
    on_disk = divided(tmp_path)
    assert on_disk.digest == whole.digest
    for name in ("train", "calibration", "validation", "test"):
        memory, disk = getattr(whole, name), getattr(on_disk, name)
        assert np.array_equal(memory.x, disk.x) and np.array_equal(memory.y, disk.y)
        assert is_mapped(disk.x) and not isinstance(memory.x.base, np.memmap)


def test_processes_that_fill_and_read_one_cache_at_once_agree(tmp_path: Path) -> None:
    for number in range(2):
        shard(tmp_path / "shards" / f"{number}.tar", pictured(200 * number, 200))
    code = (
        "import sys; from pathlib import Path; from tests.data.test_memory_map import divided, is_mapped\n"
        "data = divided(Path(sys.argv[1])); assert is_mapped(data.train.x); print(data.digest)"
    )
    environment = {**os.environ, memory_map.LIMIT_VARIABLE: "0"}
    root = Path(__file__).parents[2]
    running = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=root, env=environment, stdout=subprocess.PIPE)
        for _ in range(3)
    ]
    digests = {process.communicate()[0] for process in running}
    assert [process.returncode for process in running] == [0, 0, 0] and len(digests) == 1
    assert digests == {f"{divided(tmp_path, 'another').digest}\n".encode()}
    entries = [path for path in (tmp_path / "cache").iterdir() if path.name != "digests"]
    assert len(entries) == 5 and not [path for path in entries if path.name.startswith(".")]


def test_rows_that_come_in_parts_are_stacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).integers(0, 255, (2000, 700), np.uint8)
    monkeypatch.setenv(memory_map.LIMIT_VARIABLE, "1")
    found = memory_map.stack_parts((x[start : start + 300] for start in range(0, 2000, 300)), 2000, tmp_path)
    assert is_mapped(found) and np.array_equal(found, x)
    small = memory_map.stack_parts((x[:10], x[10:20]), 20, tmp_path)
    assert not isinstance(small, np.memmap) and np.array_equal(small, x[:20])


def test_entries_of_the_cache_have_the_type_that_was_asked_for(tmp_path: Path) -> None:
    with new_entry(tmp_path, "key") as entry:
        entry.array("train_x", (4, 3), "float32")[:] = np.arange(12).reshape(4, 3) / 2
        entry.finish_split("train", np.array([True, False, True, True]), np.arange(4))
        entry.finish(("a",), (), [], 4)
    found = open_entry(tmp_path, "key")
    assert found is not None
    assert np.array_equal(found.splits["train"].x, np.array([[0, 1, 2], [6, 7, 8], [9, 10, 11]], np.float32) / 2)
