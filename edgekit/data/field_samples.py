"""Read samples that a device kept (`edgerun predict --keep`), and write and read the table of their labels.

The table has a row for each sample: `file,time,doubt,answer,label`. The model filled in `answer`; a person fills in
`label`, or leaves it empty if the label is not known. A label is written like an answer: for classes, the name of the
class; for several labels at once, their names separated by semicolons, or `none`; for a regression, the values
separated by semicolons.
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
"""Tasks whose labels can be typed into a table. Boxes and masks have to be drawn instead."""
DAMAGED_FILE_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, EOFError, MemoryError, RecursionError,
    NotImplementedError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""The exceptions that NumPy, zipfile and json raise for a file that was edited or truncated."""


@dataclass(frozen=True, eq=False)
class FieldSample:
    """A sample that a device kept, with the model's outputs.

    `file` is relative to the folder. `answer` is the model's answer, written like a label, or empty.
    """

    file: str
    raw: np.ndarray
    outputs: np.ndarray
    time_s: float
    doubt: float
    answer: str


@dataclass(frozen=True)
class FieldSamples:
    """Samples that one bundle answered, the earliest first.

    `about` describes the bundle: name, version, task, labels, raw, identity.
    """

    about: Mapping[str, Any]
    samples: tuple[FieldSample, ...]

    @property
    def task(self) -> str:
        """The task of the bundle."""
        return str(self.about["task"])

    @property
    def labels(self) -> list[str]:
        """The labels of the bundle."""
        return list(self.about["labels"])


def read_samples(folder: Path, bundle: str | None = None) -> FieldSamples:
    """Read all samples of a folder that one bundle answered.

    Parameters
    ----------
    folder
        The folder that `edgerun predict --keep` filled.
    bundle
        The beginning of the bundle's identity; None if the folder has samples of one bundle only.

    Raises
    ------
    DataError
        The folder has no samples, has samples of several bundles, or has a damaged file.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: does not exist; copy the folder that `edgerun predict --keep` filled on the device")
    by_bundle: dict[str, list[FieldSample]] = {}
    bundle_files = {path.stem.partition("-")[2]: path for path in sorted(folder.glob("bundle-*.json"))}
    abouts = {identity: _about(path) for identity, path in bundle_files.items()}
    for day in sample_folder.day_folders(folder):
        for name in sample_folder.sample_names(day):
            identity, sample = _sample(day / name, f"{day.name}/{name}", abouts)
            by_bundle.setdefault(identity, []).append(sample)
    if not by_bundle:
        raise DataError(f"{folder}: holds no sample; `edgerun predict --keep {folder}` keeps the most uncertain ones")
    matches = [identity for identity in by_bundle if identity.startswith(bundle or "")]
    if len(matches) != 1:
        listed = ", ".join(f"{abouts[each]['name']} {abouts[each]['version']} ({each})" for each in sorted(by_bundle))
        problem = f"no sample of bundle {bundle}" if bundle and not matches else "samples of several bundles"
        raise DataError(f"{folder}: {problem}; it holds samples of {listed}: choose one with --bundle")
    samples = sorted(by_bundle[matches[0]], key=lambda each: (each.time_s, each.file))
    return FieldSamples(abouts[matches[0]], tuple(samples))


def label_table(samples: FieldSamples, labels: Mapping[str, str] | None = None) -> bytes:
    """Return the table as bytes. `labels` maps a sample's `file` to its label."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for sample in samples.samples:
        time_text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(sample.time_s))
        label = (labels or {}).get(sample.file, "")
        writer.writerow([sample.file, time_text, f"{sample.doubt:.4f}", sample.answer, label])
    return text.getvalue().encode()


def read_labels(path: Path) -> dict[str, str]:
    """Read the labels from a corrected table, as a dict from `file` to label. Rows without a label are left out.

    Raises
    ------
    DataError
        The table is not valid.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path}: is not UTF-8; save the table as UTF-8") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)  # a spreadsheet program may have changed the delimiter
    rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    columns = [name.strip() for name in rows.fieldnames or ()]
    if missing := [name for name in ("file", "label") if name not in columns]:
        raise DataError(f"{path}: column {missing[0]} is missing; keep the first line as it was: {','.join(COLUMNS)}")
    rows.fieldnames = columns
    labels: dict[str, str] = {}
    for row in rows:
        file, label = (row["file"] or "").strip(), (row["label"] or "").strip()
        if labels.get(file, label) != label:
            raise DataError(f"{path}, line {rows.line_num}: {file} has two labels; keep one of them")
        if file and label:
            labels[file] = label
    return labels


def label_array(samples: FieldSamples, texts: Sequence[str], classes: Sequence[str]) -> np.ndarray:
    """Convert labels from texts (n,) to an array as `edgekit/data/arrays.py` expects it.

    Raises
    ------
    DataError
        A text is not a valid label. The message names the first such text.
    """
    task = samples.task
    if task == "regression":
        return np.array([_values(text, len(samples.labels)) for text in texts], np.float32)
    indices = {name: index for index, name in enumerate(classes)}
    if task == "multi_label":
        y = np.zeros((len(texts), len(classes)), np.int64)
        for row, text in enumerate(texts):
            names = [] if text == NO_LABELS else [name.strip() for name in text.split(LABEL_SEPARATOR)]
            y[row, [_class_index(name, indices) for name in names]] = 1
        return y
    return np.array([_class_index(text, indices) for text in texts], np.int64)


def _class_index(name: str, indices: Mapping[str, int]) -> int:
    if name not in indices:
        raise DataError(
            f"label {name!r}: the bundle has no such class, {suggest(name, list(indices))}; add a new class with "
            f"--add-class {name!r}"
        )
    return indices[name]


def _values(text: str, count: int) -> list[float]:
    try:
        values = [float(each) for each in text.split(LABEL_SEPARATOR)]
    except ValueError:
        values = []
    if len(values) != count or not np.isfinite(values).all():
        raise DataError(
            f"label {text!r}: give {count} number{'s' if count > 1 else ''}, separated by {LABEL_SEPARATOR!r}"
        )
    return values


def _about(path: Path) -> dict[str, Any]:
    try:
        with bounded_recursion():
            fields = json.loads(path.read_bytes())
        texts = [fields[name] for name in ("name", "version", "task", "identity")] + fields["labels"]
        raw = fields["raw"]
        has_texts = all(isinstance(each, str) for each in (*texts, raw["kind"], raw["dtype"]))
        numbers = [*raw["shape"], raw["sample_rate_hz"] or 1]
        parts = [each[name] for each in raw["tensors"] or () for name in ("name", "shape", "dtype")]
        if has_texts and all(type(each) is int and each > 0 for each in numbers) and None not in parts:
            return dict(fields)
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
            raise ValueError(f"it holds {raw.dtype}{list(raw.shape)}, but the bundle takes {bundle['raw']}")
        answer = "" if bundle is None else LABEL_SEPARATOR.join(_answer(bundle, about["answer"]))
    except DAMAGED_FILE_ERRORS as error:
        raise DataError(f"{path}: is damaged ({error}); remove it, or copy it from the device again") from None
    if bundle is None:
        raise DataError(f"{path.parents[1]}: bundle-{identity}.json is missing; copy it from the device, too")
    return identity, FieldSample(file, raw, outputs, when, doubt, answer)


def _answer(bundle: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    task = bundle["task"]
    if task in ("classification", "anomaly"):
        yield str(answer["label"])
    elif task == "multi_label":
        yield from answer["labels"] or [NO_LABELS]
    elif task == "regression":
        yield from (f"{value:.6g}" for value in answer["values"].values())


CLASSES, LABELS_BY_MODEL = "classes", "labels_by_model"
EVALUATION_SPLITS, EVALUATION_STEP = ("validation", "test"), 5
ARRAY_KINDS = ("image", "vector", "window", "audio", "tensors")
"""Kinds of raw samples that arrays can hold. Texts are not among them, because only their token ids were kept."""


@dataclass(frozen=True)
class PackedSamples:
    """The arrays of the `.npz` file to write, and how many samples are in it.

    `labelled` counts the samples whose labels a person gave, and `older` those that came from the file after --with.
    `unlabelled` counts the samples that were left out, because they have no label. `tested` gives, for each split
    except train, how many samples of new classes it received.
    """

    arrays: dict[str, np.ndarray]
    labelled: int
    unlabelled: int
    older: int
    tested: Mapping[str, int] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the `.npz` as bytes."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **self.arrays)  # type: ignore[arg-type]
        return buffer.getvalue()


def pack(
    samples: FieldSamples,
    labels: Mapping[str, str] | None = None,
    add_classes: Sequence[str] = (),
    older: Path | None = None,
) -> PackedSamples:
    """Return the arrays of kept samples: x_train, y_train, classes.

    Parameters
    ----------
    samples
        The kept samples.
    labels
        Labels by `file`; only labelled samples are packed. Without it, y_train holds the model's own answers, and
        `labels_by_model` records this, so that a run which trains on them reports it.
    add_classes
        Names of classes that the bundle does not have.
    older
        An `.npz` to which the kept samples are added. Its validation and test splits receive only samples of classes
        that are new.

    Raises
    ------
    DataError
        Samples or labels do not fit.
    """
    _check_packable(samples, labels)
    chosen = samples.samples if labels is None else [sample for sample in samples.samples if sample.file in labels]
    if not chosen:
        raise DataError("no kept sample has a label; fill in the column label of the table, and save it as CSV")
    texts = [sample.answer if labels is None else labels[sample.file] for sample in chosen]
    classes = _classes(samples, texts, add_classes)
    packed: dict[str, np.ndarray] = {**_x(samples, chosen), "y_train": label_array(samples, texts, classes)}
    packed[CLASSES] = np.array(classes)
    if labels is None:
        packed[LABELS_BY_MODEL] = np.array(len(chosen))
    older_count, tested = 0, dict[str, int]()
    if older is not None:
        older_arrays = _older(older)
        older_count = len(older_arrays["y_train"])
        packed, tested = _join(older_arrays, packed, older.name)
    unlabelled = 0 if labels is None else len(samples.samples) - len(chosen)
    return PackedSamples(packed, 0 if labels is None else len(chosen), unlabelled, older_count, tested)


def _check_packable(samples: FieldSamples, labels: Mapping[str, str] | None) -> None:
    kind = samples.about["raw"]["kind"]
    if samples.task not in TYPED_TASKS:
        raise DataError(
            f"task {samples.task}: its labels are drawn, not typed; write the samples with --files, and draw the "
            f"labels there"
        )
    if kind not in ARRAY_KINDS:
        raise DataError(f"samples of kind {kind}: the kept token ids cannot be read as text; label the original texts")
    if samples.task == "embedding" and labels is None:
        raise DataError("task embedding: answers are not labels; fill in the table, and give it with --labels")


def _classes(samples: FieldSamples, texts: Sequence[str], added: Sequence[str]) -> list[str]:
    if samples.task == "embedding":
        return sorted(set(texts))
    return [*samples.labels, *(name for name in added if name not in samples.labels)]


def _x(samples: FieldSamples, selected: Sequence[FieldSample]) -> dict[str, np.ndarray]:
    raw = samples.about["raw"]
    x = np.stack([each.raw for each in selected])
    if list(x.shape[1:]) != list(raw["shape"]):
        raise DataError(f"kept samples are {x.shape[1:]}, but the bundle takes {raw['shape']}; copy them again")
    if raw["kind"] != "tensors":
        return {"x_train": x}
    parts = input_vector.split(x, [each["shape"] for each in raw["tensors"]])
    named = zip(raw["tensors"], parts, strict=True)
    return {f"x_train.{tensor['name']}": part.astype(tensor["dtype"]) for tensor, part in named}


def _older(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays_by_name: dict[str, np.ndarray] = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"--with {path}: cannot be read as .npz ({error}); give the data that the model was trained on"
        ) from None
    has_integer_labels = "y_train" not in arrays_by_name or arrays_by_name["y_train"].dtype.kind != "f"
    pools = arrays.pools_from_arrays(
        arrays_by_name, path.name, "classification" if has_integer_labels else "regression"
    )
    if has_integer_labels:  # labels such as -1 and 1 become indices of classes
        arrays_by_name.update(
            {f"y_{name}": split.y for name, split in pools.splits().items()}, classes=np.array(pools.classes)
        )
    return arrays_by_name


def _join(older: dict[str, Any], newer: dict[str, Any], origin: str) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Join the older and the kept samples, the older ones first.

    Also returns how many samples of new classes each split except train received.
    """
    y, older_names = newer["y_train"], []
    names = [str(name) for name in newer[CLASSES]]
    if y.dtype.kind != "f":
        older_names = [str(name) for name in older[CLASSES]]
        names = [*older_names, *(name for name in names if name not in older_names)]
        if y.ndim == 1:
            y = np.array([names.index(str(newer[CLASSES][label])) for label in y], np.int64)
        elif older_names != names:
            raise DataError(
                f"--with {origin}: its labels are {', '.join(older_names)}, but those here are {', '.join(names)}"
            )
    elif y.shape[1] == 1 and older["y_train"].ndim == 1:
        y = y[:, 0]
    parts = {**{name: newer[name] for name in newer if name.startswith("x_train")}, "y_train": y}
    joined: dict[str, np.ndarray] = {**older, CLASSES: np.array(names)}
    indices = _assign_splits(y, len(older_names), [split for split in EVALUATION_SPLITS if f"y_{split}" in older])
    for split, selected in indices.items():
        for name, part in parts.items():
            target_name = name.replace("train", split)
            joined[target_name] = _append(older, part[selected], target_name, origin)
    if LABELS_BY_MODEL in newer:
        joined[LABELS_BY_MODEL] = newer[LABELS_BY_MODEL]
    if "groups_train" in older:  # each kept sample counts as a recording of its own
        groups = older["groups_train"]
        joined["groups_train"] = np.concatenate([groups, groups.max() + 1 + np.arange(len(indices["train"]))])
    return joined, {split: len(selected) for split, selected in indices.items() if split != "train" and len(selected)}


def _assign_splits(y: np.ndarray, known_count: int, others: Sequence[str]) -> dict[str, np.ndarray]:
    """Assign samples to splits: a fifth of each new class goes to each of `others`, all other samples go to train."""
    split = np.full(len(y), "train", dtype="<U10")
    if y.ndim == 1 and y.dtype.kind == "i":
        for label in np.unique(y[y >= known_count]):
            for offset, other in enumerate(others):
                split[np.flatnonzero(y == label)[offset::EVALUATION_STEP]] = other
    return {name: np.flatnonzero(split == name) for name in ("train", *others)}


def _append(older: Mapping[str, np.ndarray], newer: np.ndarray, name: str, origin: str) -> np.ndarray:
    first = older.get(name)
    if first is None:
        raise DataError(f"--with {origin}: the array {name} is missing, but the kept samples have it")
    if first.shape[1:] == newer.shape[1:-1] and newer.shape[-1] == 1:
        newer = newer[..., 0]  # grey pictures without a channel axis
    is_same_kind = first.dtype.kind == newer.dtype.kind or name.startswith("y_")
    if first.shape[1:] != newer.shape[1:] or not is_same_kind:
        raise DataError(
            f"--with {origin}: {name} is {first.dtype}{list(first.shape[1:])}, a kept sample "
            f"{newer.dtype}{list(newer.shape[1:])}; give the data of this very bundle"
        )
    return np.concatenate([first, newer.astype(first.dtype)])
