"""A table of files and their labels in place of folders of classes, for pictures and for sounds."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from edgekit.core.errors import DataError
from edgekit.data import Data, fingerprint, load, parse
from tests.data.pictures import samples, unpacked
from tests.data.sources.test_wav_folder import folder as sounds


def listed(home: Path, source: Path, split: bool = False) -> Path:
    """The files of a folder of classes, put side by side, and a table that says what they are."""
    home.mkdir()
    rows = ["file,label,split" if split else "file,label"]
    for number, path in enumerate(sorted(source.rglob("*.*"))):
        name = f"{'odd names/' if number % 2 else ''}{number:03} x{path.suffix}"
        (home / name).parent.mkdir(exist_ok=True)
        shutil.copy(path, home / name)
        rows.append(",".join([name, path.parent.name, *([path.parent.parent.name] if split else [])]))
    (home / "labels.csv").write_text("\n".join(rows) + "\n")
    return home / "labels.csv"


def pictures(tmp_path: Path, split: bool = False) -> tuple[Path, Path]:
    """A folder of classes, and the table of the same pictures."""
    folder = unpacked(tmp_path, samples(validation=8, test=8) if split else samples())
    return folder, listed(tmp_path / "listed", folder, split)


def read(path: Path, **more: object) -> Data:
    options = {"source": "image_folder", "path": str(path), "size": 8, "calibration_samples": 3}
    return load(parse({**options, "cache": str(path.parent / "cache"), **more}))


def every(data: Data) -> Counter[tuple[str, bytes]]:
    splits = (data.train, data.calibration, data.validation, data.test)
    return Counter((data.classes[y], x.tobytes()) for split in splits for x, y in zip(split.x, split.y, strict=True))


def test_the_same_pictures_are_the_same_samples(tmp_path: Path) -> None:
    folder, table = pictures(tmp_path)
    assert every(read(table)) == every(read(folder))


def test_a_column_may_say_the_split(tmp_path: Path) -> None:
    folder, table = pictures(tmp_path, split=True)
    one, other = read(table), read(folder)
    assert Counter(x.tobytes() for x in one.test.x) == Counter(x.tobytes() for x in other.test.x)


def test_sounds_are_listed_too(tmp_path: Path) -> None:
    folder = sounds(tmp_path / "sounds", 40)
    table = listed(tmp_path / "listed", folder)
    options = {"source": "wav_folder", "rate_hz": 8000, "seconds": 0.1, "calibration_samples": 3}
    one, other = (load(parse({**options, "path": str(path)})) for path in (table, folder))
    assert every(one) == every(other)


def test_a_file_that_changes_changes_the_data(tmp_path: Path) -> None:
    _, table = pictures(tmp_path)
    options = {"source": "image_folder", "path": str(table), "size": 8, "calibration_samples": 3}
    before = fingerprint(parse(options))
    first = read(table)
    names = [line.split(",")[0] for line in table.read_text().splitlines()[1:]]
    shutil.copy(table.parent / names[0], table.parent / "spare.png")
    assert fingerprint(parse(options)) == before  # what the table does not name is no part of the data
    pixels = (table.parent / names[1]).read_bytes()
    (table.parent / names[1]).unlink()
    (table.parent / names[1]).write_bytes(pixels)
    assert fingerprint(parse(options)) != before
    assert read(table).digest == first.digest


FAULTS = {
    "missing": (
        "file,label\n{0},a\nno.png,b\n",
        "1 of its 2 files do not exist: 'no.png' (line 3); names are relative",
    ),
    "twice": ("file,label\n{0},a\n./{0},b\n", "labels.csv, line 3: './{0}' is already in line 2; keep one"),
    "no label": (
        "file,label\n{0},a\n{1},\n",
        "labels.csv, line 3: the label is empty; fill it in, or leave the row out",
    ),
    "no file": ("file,label\n,a\n", "labels.csv, line 2: the file is empty"),
    "outside": ("file,label\n../{0},a\n", "labels.csv, line 2: '../{0}' is outside the table's folder"),
    "absolute": ("file,label\n/{0},a\n", "labels.csv, line 2: '/{0}' is outside the table's folder"),
    "no header": ("{0},a\n{1},b\n", "labels.csv: no column is called 'file'; its header is"),
    "another column": ("file,class\n{0},a\n", "labels.csv: no column is called 'label'; its header is 'file', 'class'"),
    "cells": ("file,label\n{0},a,b\n", "labels.csv, line 2: 3 cells, but the header has 2"),
    "a split": (
        "file,label,split\n{0},a,trian\n",
        "labels.csv, line 2: 'trian' is not the name of a split, did you mean",
    ),
    "no train": ("file,label,split\n{0},a,test\n", "labels.csv: no file belongs to the split train"),
    "rows": ("file,label\n", "labels.csv: lists no file"),
    "kind": ("file,label\nlabels.csv,a\n", "labels.csv, line 2: 'labels.csv' is not a picture"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_that_cannot_be_is_named(fault: str, tmp_path: Path) -> None:
    _, table = pictures(tmp_path)
    names = [line.split(",")[0] for line in table.read_text().splitlines()[1:3]]
    text, message = (each.format(*names) for each in FAULTS[fault])
    table.write_text(text)
    with pytest.raises(DataError) as caught:
        read(table)
    assert message in str(caught.value)


def test_the_order_of_the_rows_decides_nothing_about_the_classes(tmp_path: Path) -> None:
    _, table = pictures(tmp_path)
    head, *rows = table.read_text().splitlines()
    before = read(table)
    table.write_text("\n".join([head, *reversed(rows)]) + "\n")
    assert read(table).classes == before.classes and every(read(table)) == every(before)
    assert np.unique(before.train.y).tolist() == list(range(len(before.classes)))
