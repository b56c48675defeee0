"""Kept samples as the `.npz` that `edgekit init` and the source `npz` read (`edgekit/data/arrays.py`)."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import DataError
from edgekit.data import arrays, field_samples
from edgekit.data.field_samples import Kept, Sample
from edgekit.runner import input_vector

CLASSES, BY_MODEL = "classes", "labels_by_model"
OTHERS, EVERY = ("validation", "test"), 5
KINDS = ("image", "vector", "window", "audio", "tensors")
"""Of raw samples that arrays hold; of a text, ids are all that is left."""


@dataclass(frozen=True)
class Packed:
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
    found: Kept, labels: Mapping[str, str] | None = None, add_classes: Sequence[str] = (), older: Path | None = None
) -> Packed:
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
    made: dict[str, np.ndarray] = {**_x(found, chosen), "y_train": field_samples.targets(found, texts, classes)}
    made[CLASSES] = np.array(classes)
    if labels is None:
        made[BY_MODEL] = np.array(len(chosen))
    count, tested = 0, dict[str, int]()
    if older is not None:
        before = _older(older)
        count = len(before["y_train"])
        made, tested = _joined(before, made, older.name)
    unlabelled = 0 if labels is None else len(found.samples) - len(chosen)
    return Packed(made, 0 if labels is None else len(chosen), unlabelled, count, tested)


def _check(found: Kept, labels: Mapping[str, str] | None) -> None:
    kind = found.about["raw"]["kind"]
    if found.task not in field_samples.TYPED:
        raise DataError(
            f"task {found.task}: its labels are drawn, not typed; write the samples with --files, and draw them there"
        )
    if kind not in KINDS:
        raise DataError(f"samples of kind {kind}: the ids of words are no text; label the texts where they came from")
    if found.task == "embedding" and labels is None:
        raise DataError("task embedding: answers are no labels; fill in the table, and give it with --labels")


def _classes(found: Kept, texts: Sequence[str], more: Sequence[str]) -> list[str]:
    if found.task == "embedding":
        return sorted(set(texts))
    return [*found.labels, *(each for each in more if each not in found.labels)]


def _x(found: Kept, chosen: Sequence[Sample]) -> dict[str, np.ndarray]:
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
    pools = arrays.pools(found, path.name, "classification" if whole_numbers else "regression")
    if whole_numbers:  # -1 and 1, say, become the places of their names
        found.update({f"y_{name}": split.y for name, split in pools.given().items()}, classes=np.array(pools.classes))
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
    places = _places(y, len(known), [split for split in OTHERS if f"y_{split}" in older])
    for split, chosen in places.items():
        for name, part in parts.items():
            into = name.replace("train", split)
            made[into] = _behind(older, part[chosen], into, origin)
    if BY_MODEL in newer:
        made[BY_MODEL] = newer[BY_MODEL]
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
                split[np.flatnonzero(y == label)[number::EVERY]] = other
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
