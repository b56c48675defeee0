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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.data import arrays
from edgekit.device.monitor import sample_folder
from edgekit.runner import input_vector
from edgekit.runner.errors import bounded_recursion

COLUMNS = ("file", "time", "doubt", "answer", "label")
LABEL_SEPARATOR, NO_LABELS = ";", "none"
TYPED_TASKS = ("classification", "multi_label", "regression", "anomaly", "embedding")
"""Tasks whose labels are written in a table; boxes and masks are drawn."""
DAMAGED_FILE_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, EOFError, MemoryError, RecursionError,
    NotImplementedError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What numpy, zipfile and json raise of a file that was edited or cut short."""


@dataclass(frozen=True, eq=False)
class FieldSample:
    """One of them: `file` is relative to the folder, `answer` what was said, as a label is written; empty: no label."""

    file: str
    raw: np.ndarray
    outputs: np.ndarray
    time_s: float
    doubt: float
    answer: str


@dataclass(frozen=True)
class FieldSamples:
    """Samples of one bundle, the earliest first. `about` is the bundle: name, version, task, labels, raw, identity."""

    about: Mapping[str, Any]
    samples: tuple[FieldSample, ...]

    @property
    def task(self) -> str:
        """The bundle's."""
        return str(self.about["task"])

    @property
    def labels(self) -> list[str]:
        """The bundle's."""
        return list(self.about["labels"])


def read_samples(folder: Path, bundle: str | None = None) -> FieldSamples:
    """All samples of a folder that this bundle answered, by the beginning of its identity; None: there is one only.

    DataError for a folder without samples, or of several bundles, or with a damaged file.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; copy the one that `edgerun predict --keep` filled from the device")
    by_bundle: dict[str, list[FieldSample]] = {}
    described = {path.stem.partition("-")[2]: path for path in sorted(folder.glob("bundle-*.json"))}
    abouts = {identity: _about(path) for identity, path in described.items()}
    for day in sample_folder.day_folders(folder):
        for name in sample_folder.sample_names(day):
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
    return FieldSamples(abouts[found[0]], tuple(samples))


def label_table(found: FieldSamples, labels: Mapping[str, str] | None = None) -> bytes:
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


def label_array(found: FieldSamples, texts: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Labels as `edgekit/data/arrays.py` takes them, of texts (n,); DataError names the first that is none."""
    task = found.task
    if task == "regression":
        return np.array([_values(text, len(found.labels)) for text in texts], np.float32)
    places = {name: place for place, name in enumerate(classes)}
    if task == "multi_label":
        y = np.zeros((len(texts), len(classes)), np.int64)
        for row, text in enumerate(texts):
            names = [] if text == NO_LABELS else [name.strip() for name in text.split(LABEL_SEPARATOR)]
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
        values = [float(each) for each in text.split(LABEL_SEPARATOR)]
    except ValueError:
        values = []
    if len(values) != count or not np.isfinite(values).all():
        raise DataError(
            f"label {text!r}: give {count} number{'s' if count > 1 else ''}, {LABEL_SEPARATOR!r} between two"
        )
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


def _sample(path: Path, file: str, abouts: Mapping[str, Mapping[str, Any]]) -> tuple[str, FieldSample]:
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
        answer = "" if bundle is None else LABEL_SEPARATOR.join(_answer(bundle, about["answer"]))
    except DAMAGED_FILE_ERRORS as error:
        raise DataError(f"{path}: is damaged ({error}); remove it, or copy it from the device again") from None
    if bundle is None:
        raise DataError(f"{path.parents[1]}: bundle-{identity}.json is missing; copy it from the device, too")
    return identity, FieldSample(file, raw, outputs, when, doubt, answer)


def _answer(bundle: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    task = bundle["task"]
    if task in ("classification", "anomaly"):
        yield str(said["label"])
    elif task == "multi_label":
        yield from said["labels"] or [NO_LABELS]
    elif task == "regression":
        yield from (f"{value:.6g}" for value in said["values"].values())


CLASSES, LABELS_BY_MODEL = "classes", "labels_by_model"
EVALUATION_SPLITS, EVALUATION_STEP = ("validation", "test"), 5
ARRAY_KINDS = ("image", "vector", "window", "audio", "tensors")
"""Of raw samples that arrays hold; of a text, ids are all that is left."""


@dataclass(frozen=True)
class PackedSamples:
    """What went into a file: `labelled` by a person, `unlabelled` left out for want of a label, `older` of --with.

    `tested`: of classes that the older data do not have, how many samples went into its other splits, by their names.
    """

    arrays: dict[str, np.ndarray]
    labelled: int
    unlabelled: int
    older: int
    tested: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The `.npz`."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays)  # type: ignore[arg-type]
        return buffer.getvalue()


def pack(
    found: FieldSamples,
    labels: Mapping[str, str] | None = None,
    add_classes: Sequence[str] = (),
    older: Path | None = None,
) -> PackedSamples:
    """Arrays of kept samples: x_train, y_train, classes.

    Without `labels` y_train is what the model itself answered, and `labels_by_model` says so: whoever trains on it is
    told. With them only labelled samples are packed. `older` is an `.npz` whose samples come first, and whose
    validation and test stay what they are. DataError for samples or labels that do not fit.
    """
    _check(found, labels)
    chosen = found.samples if labels is None else [each for each in found.samples if each.file in labels]
    if not chosen:
        raise DataError("no kept sample has a label; fill in the column label of the table, and save it as CSV")
    texts = [each.answer if labels is None else labels[each.file] for each in chosen]
    classes = _classes(found, texts, add_classes)
    made: dict[str, np.ndarray] = {**_x(found, chosen), "y_train": label_array(found, texts, classes)}
    made[CLASSES] = np.array(classes)
    if labels is None:
        made[LABELS_BY_MODEL] = np.array(len(chosen))
    count, tested = 0, dict[str, int]()
    if older is not None:
        before = _older(older)
        count = len(before["y_train"])
        made, tested = _joined(before, made, older.name)
    unlabelled = 0 if labels is None else len(found.samples) - len(chosen)
    return PackedSamples(made, 0 if labels is None else len(chosen), unlabelled, count, tested)


def _check(found: FieldSamples, labels: Mapping[str, str] | None) -> None:
    kind = found.about["raw"]["kind"]
    if found.task not in TYPED_TASKS:
        raise DataError(
            f"task {found.task}: its labels are drawn, not typed; write the samples with --files, and draw them there"
        )
    if kind not in ARRAY_KINDS:
        raise DataError(f"samples of kind {kind}: the ids of words are no text; label the texts where they came from")
    if found.task == "embedding" and labels is None:
        raise DataError("task embedding: answers are no labels; fill in the table, and give it with --labels")


def _classes(found: FieldSamples, texts: Sequence[str], more: Sequence[str]) -> list[str]:
    if found.task == "embedding":
        return sorted(set(texts))
    return [*found.labels, *(each for each in more if each not in found.labels)]


def _x(found: FieldSamples, chosen: Sequence[FieldSample]) -> dict[str, np.ndarray]:
    raw = found.about["raw"]
    x = np.stack([each.raw for each in chosen])
    if list(x.shape[1:]) != list(raw["shape"]):
        raise DataError(f"kept samples are {x.shape[1:]}, and the bundle takes {raw['shape']}; copy them again")
    if raw["kind"] != "tensors":
        return {"x_train": x}
    parts = input_vector.split(x, [each["shape"] for each in raw["tensors"]])
    named = zip(raw["tensors"], parts, strict=True)
    return {f"x_train.{tensor['name']}": part.astype(tensor["dtype"]) for tensor, part in named}


def _older(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            found: dict[str, np.ndarray] = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"--with {path}: cannot be read as .npz ({error}); give the data that was trained with"
        ) from None
    whole_numbers = "y_train" not in found or found["y_train"].dtype.kind != "f"
    pools = arrays.pools_from_arrays(found, path.name, "classification" if whole_numbers else "regression")
    if whole_numbers:  # -1 and 1, say, become the places of their names
        found.update({f"y_{name}": split.y for name, split in pools.splits().items()}, classes=np.array(pools.classes))
    return found


def _joined(older: dict[str, Any], newer: dict[str, Any], origin: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Both, the older ones first; and how many samples of new classes each split but train has got."""
    y, known = newer["y_train"], []
    names = [str(name) for name in newer[CLASSES]]
    if y.dtype.kind != "f":
        known = [str(name) for name in older[CLASSES]]
        names = [*known, *(name for name in names if name not in known)]
        if y.ndim == 1:
            y = np.array([names.index(str(newer[CLASSES][label])) for label in y], np.int64)
        elif known != names:
            raise DataError(f"--with {origin}: its labels are {', '.join(known)}, and those here {', '.join(names)}")
    elif y.shape[1] == 1 and older["y_train"].ndim == 1:
        y = y[:, 0]
    parts = {**{name: newer[name] for name in newer if name.startswith("x_train")}, "y_train": y}
    made: dict[str, np.ndarray] = {**older, CLASSES: np.array(names)}
    places = _places(y, len(known), [split for split in EVALUATION_SPLITS if f"y_{split}" in older])
    for split, chosen in places.items():
        for name, part in parts.items():
            into = name.replace("train", split)
            made[into] = _behind(older, part[chosen], into, origin)
    if LABELS_BY_MODEL in newer:
        made[LABELS_BY_MODEL] = newer[LABELS_BY_MODEL]
    if "groups_train" in older:  # each kept sample is a recording of its own
        groups = older["groups_train"]
        made["groups_train"] = np.concatenate([groups, groups.max() + 1 + np.arange(len(places["train"]))])
    return made, {split: len(chosen) for split, chosen in places.items() if split != "train" and len(chosen)}


def _places(y: np.ndarray, known: int, others: Sequence[str]) -> dict[str, np.ndarray]:
    """Which samples go where: all to train; of each class that is new a fifth to each split that must have all."""
    split = np.full(len(y), "train", dtype="<U10")
    if y.ndim == 1 and y.dtype.kind == "i":
        for label in np.unique(y[y >= known]):
            for number, other in enumerate(others):
                split[np.flatnonzero(y == label)[number::EVALUATION_STEP]] = other
    return {name: np.flatnonzero(split == name) for name in ("train", *others)}


def _behind(older: Mapping[str, np.ndarray], more: np.ndarray, name: str, origin: str) -> np.ndarray:
    first = older.get(name)
    if first is None:
        raise DataError(f"--with {origin}: it has no {name}, which the kept samples have")
    if first.shape[1:] == more.shape[1:-1] and more.shape[-1] == 1:
        more = more[..., 0]  # grey pictures without their axis of channels
    same = first.dtype.kind == more.dtype.kind or name.startswith("y_")
    if first.shape[1:] != more.shape[1:] or not same:
        raise DataError(
            f"--with {origin}: {name} is {first.dtype}{list(first.shape[1:])}, a kept sample "
            f"{more.dtype}{list(more.shape[1:])}; give the data of this very bundle"
        )
    return np.concatenate([first, more.astype(first.dtype)])
