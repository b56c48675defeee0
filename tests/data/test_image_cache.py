from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from edgekit.core import source_code
from edgekit.core.errors import ResourceError
from edgekit.data import cache_folder, load, parse

from . import boxed, masked
from .pictures import contents, picture, read, samples, unpacked, zipped


def test_the_second_time_nothing_is_decoded(tmp_path):
    path, calls = zipped(tmp_path, samples()), []
    one = read(path, lambda done, total: calls.append((done, total)))
    assert calls[-1] == (60, 60)
    calls.clear()
    other = read(path, lambda done, total: calls.append((done, total)))
    assert one.digest == other.digest and calls == []


def test_other_content_or_options_are_decoded_anew(tmp_path):
    files = samples()
    one = read(zipped(tmp_path, files))
    assert read(zipped(tmp_path, files), size=9).digest != one.digest
    assert read(zipped(tmp_path, files | {"train/bee/000.png": picture(999)})).digest != one.digest
    folder = unpacked(tmp_path, files)
    read(folder)
    changed, when = folder / "train/bee/000.png", (folder / "train/bee/000.png").stat()
    changed.write_bytes(picture(999)[: when.st_size].ljust(when.st_size, b"\0"))
    os.utime(changed, ns=(when.st_atime_ns, when.st_mtime_ns))  # same size, same time, other content
    assert read(folder, max_corrupt_fraction=0.05).digest != one.digest


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "record"])
def test_a_damaged_cache_is_made_anew(tmp_path, damage):
    path = zipped(tmp_path, samples())
    whole = read(path).digest
    array = next((tmp_path / "cache").glob("*/train_x.npy"))
    data = bytearray(array.read_bytes())
    if damage == "flip":
        data[-1] ^= 1
    target = array.with_name("record.json") if damage == "record" else array
    target.unlink()  # a new file: the old one may be mapped
    if damage != "remove":
        target.write_bytes(data[:100] if damage == "truncate" else data if damage == "flip" else b"[]")
    assert read(path).digest == whole
    assert read(path).digest == whole and len(list((tmp_path / "cache").iterdir())) == 1


def test_an_interrupted_decode_leaves_nothing_and_the_next_one_works(tmp_path):
    path = zipped(tmp_path, samples(train=200))

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(path, interrupt)
    assert list((tmp_path / "cache").iterdir()) == []
    assert len(contents(read(path))) == 400


def test_what_a_killed_process_left_is_swept_after_a_day(tmp_path):
    path = zipped(tmp_path, samples())
    old, new = tmp_path / "cache" / ".a.1.tmp", tmp_path / "cache" / ".b.2.tmp"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (time.time() - 2 * 86_400,) * 2)
    read(path)
    assert not old.exists() and new.exists()


def test_two_makers_of_one_entry_end_with_one(tmp_path):
    path = zipped(tmp_path, samples())
    inner = []

    def meanwhile(done, total):
        if not inner:
            inner.append(None)
            pid = os.getpid
            os.getpid = lambda: -1  # as if it were another process
            try:
                inner[0] = read(path).digest
            finally:
                os.getpid = pid

    assert read(path, meanwhile).digest == inner[0]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_cache_that_cannot_be_written_says_so(tmp_path):
    path = zipped(tmp_path, samples())
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match=r"data\.cache: cannot write to .*set data\.cache"):
        read(path, cache=str(tmp_path / "file" / "below"))


def test_the_cache_follows_xdg(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    read(zipped(tmp_path, samples()), cache=None)
    assert cache_folder.default_folder() == tmp_path / "xdg" / "edgekit"
    assert len(list((tmp_path / "xdg" / "edgekit").iterdir())) == 1


@pytest.mark.parametrize("part", ["runner/input_path.py", "data/labelled_pictures.py", "data/folder_layout.py"])
@pytest.mark.parametrize("kind", ["boxes", "masks"])
def test_pictures_are_read_anew_where_the_code_that_places_or_chooses_them_changes(
    kind: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(source_code.ROOT, tmp_path / "code", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(source_code, "ROOT", tmp_path / "code")
    section = {"source": kind, "path": str(tmp_path / "pictures"), "cache": str(tmp_path / "cache")}
    section |= {"height": 48, "width": 64, "calibration_samples": 3}
    if kind == "boxes":
        boxed.WRITERS["yolo"](tmp_path / "pictures", boxed.scenes(12))
        config = parse({**section, "annotations": "yolo"}, "detection")
    else:
        masked.WRITERS["folders"](tmp_path / "pictures", masked.scenes(12))
        config = parse({**section, "layout": "folders"}, "segmentation")
    try:
        for entries, line in ((1, ""), (1, "\n# a remark\n"), (2, "\nX = 1\n")):
            with open(tmp_path / "code" / part, "a") as stream:
                stream.write(line)
            source_code.clear_caches()
            load(config)
            assert len(list((tmp_path / "cache").glob("*/record.json"))) == entries
    finally:
        source_code.clear_caches()
