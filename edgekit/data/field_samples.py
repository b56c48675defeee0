"""Samples that a device kept (`edgerun predict --keep`), read at the desk, and their labels as text in a table.

The table has a row for each sample: `file,time,doubt,answer,label`. The model filled in `answer`; a person fills in
`label`, and leaves it empty where nobody knows. A label is written as its answer is: the name of a class; of several
labels at once their names with a semicolon between, or `none`; of a regression the values, likewise.
"""

from __future__ import annotations

import csv
import io
import json
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.device.monitor import kept
from edgekit.runner.errors import bounded_recursion

COLUMNS = ("file", "time", "doubt", "answer", "label")
BETWEEN, NONE = ";", "none"
TYPED = ("classification", "multi_label", "regression", "anomaly", "embedding")
"""Tasks whose labels are written in a table; boxes and masks are drawn."""
DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, EOFError, MemoryError,
           RecursionError, NotImplementedError, zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What numpy, zipfile and json raise of a file that was edited or cut short."""


@dataclass(frozen=True, eq=False)
class Sample:
    """One of them: `file` is relative to the folder, `answer` what was said, as a label is written; empty: no label."""

    file: str
    raw: np.ndarray
    outputs: np.ndarray
    time_s: float
    doubt: float
    answer: str


@dataclass(frozen=True)
class Kept:
    """Samples of one bundle, the earliest first. `about` is the bundle: name, version, task, labels, raw, identity."""

    about: Mapping[str, Any]
    samples: tuple[Sample, ...]

    @property
    def task(self) -> str:
        """The bundle's."""
        return str(self.about["task"])

    @property
    def labels(self) -> list[str]:
        """The bundle's."""
        return list(self.about["labels"])


def read(folder: Path, bundle: str | None = None) -> Kept:
    """All samples of a folder that this bundle answered, by the beginning of its identity; None: there is one only.

    DataError for a folder without samples, or of several bundles, or with a damaged file.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; copy the one that `edgerun predict --keep` filled from the device")
    by_bundle: dict[str, list[Sample]] = {}
    described = {path.stem.partition("-")[2]: path for path in sorted(folder.glob("bundle-*.json"))}
    abouts = {identity: _about(path) for identity, path in described.items()}
    for day in kept.days(folder):
        for name in kept.names(day):
            identity, sample = _sample(day / name, f"{day.name}/{name}", abouts)
            by_bundle.setdefault(identity, []).append(sample)
    if not by_bundle:
        raise DataError(f"{folder}: holds no sample; `edgerun predict --keep {folder}` keeps the most doubtful ones")
    found = [identity for identity in by_bundle if identity.startswith(bundle or "")]
    if len(found) != 1:
        have = ", ".join(f"{abouts[each]['name']} {abouts[each]['version']} ({each})" for each in sorted(by_bundle))
        what = f"no sample of bundle {bundle}" if bundle and not found else "samples of several bundles"
        raise DataError(f"{folder}: {what}; it holds those of {have}: name one with --bundle")
    samples = sorted(by_bundle[found[0]], key=lambda each: (each.time_s, each.file))
    return Kept(abouts[found[0]], tuple(samples))


def table(found: Kept, labels: Mapping[str, str] | None = None) -> bytes:
    """The table, with the labels that there are by `file`."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in found.samples:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.time_s))
        label = (labels or {}).get(each.file, "")
        writer.writerow([each.file, when, f"{each.doubt:.4f}", each.answer, label])
    return text.getvalue().encode()


def read_labels(path: Path) -> dict[str, str]:
    """Labels by `file` out of a corrected table, those that are filled in; DataError for a table that is none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is no UTF-8; save the table as UTF-8") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)  # a spreadsheet may have written others
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns = [name.strip() for name in rows.fieldnames or ()]
    if missing := [name for name in ("file", "label") if name not in columns]:
        raise DataError(f"{path}: column {missing[0]} is missing; keep the first line as it was: {','.join(COLUMNS)}")
    rows.fieldnames = columns
    found: dict[str, str] = {}
    for row in rows:
        file, label = (row["file"] or "").strip(), (row["label"] or "").strip()
        if found.get(file, label) != label:
            raise DataError(f"{path}, line {rows.line_num}: {file} has two labels; leave one")
        if file and label:
            found[file] = label
    return found


def targets(found: Kept, texts: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Labels as `edgekit/data/arrays.py` takes them, of texts (n,); DataError names the first that is none."""
    task = found.task
    if task == "regression":
        return np.array([_values(text, len(found.labels)) for text in texts], np.float32)
    places = {name: place for place, name in enumerate(classes)}
    if task == "multi_label":
        y = np.zeros((len(texts), len(classes)), np.int64)
        for row, text in enumerate(texts):
            names = [] if text == NONE else [name.strip() for name in text.split(BETWEEN)]
            y[row, [_place(name, places) for name in names]] = 1
        return y
    return np.array([_place(text, places) for text in texts], np.int64)


def _place(name: str, places: Mapping[str, int]) -> int:
    if name not in places:
        raise DataError(
            f"label {name!r}: the bundle has no such class, {suggest(name, list(places))}; a class that is new is "
            f"added with --add-class {name!r}"
        )
    return places[name]


def _values(text: str, count: int) -> list[float]:
    try:
        values = [float(each) for each in text.split(BETWEEN)]
    except ValueError:
        values = []
    if len(values) != count or not np.isfinite(values).all():
        raise DataError(f"label {text!r}: give {count} number{'s' if count > 1 else ''}, {BETWEEN!r} between two")
    return values


def _about(path: Path) -> dict[str, Any]:
    try:
        with bounded_recursion():
            found = json.loads(path.read_bytes())
        texts = [found[name] for name in ("name", "version", "task", "identity")] + found["labels"]
        raw = found["raw"]
        fits = all(isinstance(each, str) for each in (*texts, raw["kind"], raw["dtype"]))
        numbers = [*raw["shape"], raw["sample_rate_hz"] or 1]
        parts = [each[name] for each in raw["tensors"] or () for name in ("name", "shape", "dtype")]
        if fits and all(type(each) is int and each > 0 for each in numbers) and None not in parts:
            return dict(found)
    except (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError):
        pass
    raise DataError(f"{path}: is damaged; copy it from the device again")


def _sample(path: Path, file: str, abouts: Mapping[str, Mapping[str, Any]]) -> tuple[str, Sample]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            raw, outputs = archive["raw"], archive["outputs"]
            with bounded_recursion():
                about = json.loads(archive["about"].tobytes())
        identity, when, doubt = str(about["bundle"]), float(about["time"]), float(about["doubt"])
        time.gmtime(when)
        bundle = abouts.get(identity)
        if bundle is not None and (list(raw.shape), str(raw.dtype)) != (bundle["raw"]["shape"], bundle["raw"]["dtype"]):
            raise ValueError(f"it holds {raw.dtype}{list(raw.shape)}, and the bundle takes {bundle['raw']}")
        answer = "" if bundle is None else BETWEEN.join(_answer(bundle, about["answer"]))
    except DAMAGED as error:
        raise DataError(f"{path}: is damaged ({error}); remove it, or copy it from the device again") from None
    if bundle is None:
        raise DataError(f"{path.parents[1]}: bundle-{identity}.json is missing; copy it from the device, too")
    return identity, Sample(file, raw, outputs, when, doubt, answer)


def _answer(bundle: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    task = bundle["task"]
    if task in ("classification", "anomaly"):
        yield str(said["label"])
    elif task == "multi_label":
        yield from said["labels"] or [NONE]
    elif task == "regression":
        yield from (f"{value:.6g}" for value in said["values"].values())
