"""The layout of a folder of samples, split/class/picture: which names are samples, of which split and class."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

import numpy as np

from edgekit.core.config import suggest
from edgekit.core.errors import DataError
from edgekit.data.archives import Listing

NOISE = "_background_noise_"
"""A folder of Speech Commands (Warden 2018): long recordings to be mixed in, which are no class."""
SPLITS = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "test": "test"}
LISTS = {
    "validation_list.txt": "validation",
    "val_list.txt": "validation",
    "testing_list.txt": "test",
    "test_list.txt": "test",
    "train_list.txt": "train",
    "training_list.txt": "train",
}
"""Official lists beside the classes, a sample a line, as Speech Commands has them; what none names is train."""
_SHOWN = 10
_STRAY = 0.02
"""Share of samples at the wrong depth that is skipped and noted; of more, the layout is another one."""

Parts = tuple[str, ...]


@dataclass(frozen=True)
class Wanted:
    """The files that are samples: the ends of their names, and how messages speak of them."""

    suffixes: tuple[str, ...]
    one: str
    endings: str
    example: str

    @property
    def expected(self) -> str:
        """What a folder should look like."""
        return (
            f"expected split/class/{self.one}, as in train/{self.example}: splits train (needed), validation (or val) "
            f"and test, {self.one}s {self.endings}; or class/{self.one} alone"
        )

    def has(self, parts: Parts) -> bool:
        """Whether the file is one."""
        return parts[-1].lower().endswith(self.suffixes) and not _hidden("/".join(parts))


PICTURES = Wanted((".jpg", ".jpeg", ".png", ".webp"), "picture", ".jpg, .jpeg, .png or .webp", "cat/0001.jpg")
RECORDINGS = Wanted((".csv",), "recording", ".csv", "walking/0001.csv")
SOUNDS = Wanted((".wav",), "sound", ".wav", "yes/0001.wav")
TEXTS = Wanted((".txt",), "text", ".txt", "spam/0001.txt")


@dataclass(frozen=True)
class Layout:
    """Names and labels of the samples of each split, in a fixed mixed order; `notes` name what was skipped."""

    classes: tuple[str, ...]
    names: dict[str, list[str]]
    labels: dict[str, np.ndarray]
    notes: tuple[str, ...]


def parse(
    listing: Listing, origin: str, wanted: Wanted = PICTURES, listed: Mapping[str, str] = MappingProxyType({})
) -> Layout:
    """Find splits, classes and samples; DataError where the folder is laid out otherwise.

    `listed` gives the split of samples by name, where folders are classes alone; what it does not name is train.
    """
    wrapper = _wrapper(listing, wanted)
    files = [tuple(name.removeprefix(wrapper).split("/")) for name in listing.files]
    folders = [tuple(name.removeprefix(wrapper).split("/")) for name in listing.folders if not _hidden(name)]
    samples = [parts for parts in files if wanted.has(parts)]
    passed = ["/".join(parts) for parts in files if not wanted.has(parts)]
    noise = ["/".join(parts) for parts in samples if NOISE in parts[:-1]]
    samples, folders = ([parts for parts in each if NOISE not in parts] for each in (samples, folders))
    bare = _is_bare(samples)
    if bare:  # class/sample, without folders of splits
        samples = [(listed.get("/".join(parts), "train"), *parts) for parts in samples]
        folders = [("train", *parts) for parts in folders]
    splits = _splits({parts[0] for parts in [*samples, *folders] if len(parts) > 1}, origin, wanted)
    stray = [parts for parts in samples if len(parts) != 3]
    if len(stray) > _STRAY * len(samples):
        raise DataError(
            f"{origin}: {'/'.join(stray[0][1 if bare else 0 :])!r} stands at the wrong depth; {wanted.expected}"
        )
    samples = [parts for parts in samples if len(parts) == 3]
    folders = [parts for parts in folders if len(parts) <= 2]
    # An empty class folder is a class too: it is reported as empty, not forgotten.
    classes = tuple(sorted({parts[1] for parts in [*samples, *folders] if len(parts) > 1}))
    index = {name: label for label, name in enumerate(classes)}
    names: dict[str, list[str]] = {split: [] for split in splits.values()}
    labels: dict[str, list[int]] = {split: [] for split in splits.values()}
    # Mixed, so that any prefix of a split is a fair sample of it; the order depends on nothing but the names.
    for place in np.random.default_rng(0).permutation(len(samples)):
        split, name, _ = samples[place]
        names[splits[split]].append(wrapper + "/".join(samples[place][1 if bare else 0 :]))
        labels[splits[split]].append(index[name])
    if bare and listed:
        passed = [name for name in passed if PurePosixPath(name).name not in LISTS]
    deep = ["/".join(parts[1 if bare else 0 :]) for parts in stray]
    notes = [
        *_noted(f"{wanted.one}s that stand at the wrong depth", deep),
        *_noted(f"{wanted.one}s of {NOISE}, which is no class", noise),
        *_noted(f"files that are no {wanted.endings}", passed),
        *_noted("linked folders", listing.links),
    ]
    return Layout(classes, names, {split: np.array(found, np.int64) for split, found in labels.items()}, tuple(notes))


def _is_bare(samples: Sequence[Parts]) -> bool:
    """Whether these are class/sample, of two classes at least, none of which is called like a split."""
    tops = {parts[0] for parts in samples if len(parts) == 2}
    flat = sum(len(parts) == 2 for parts in samples)
    meant = any(difflib.get_close_matches(name.lower(), SPLITS, cutoff=0.75) for name in tops)
    return len(tops) > 1 and not meant and flat >= (1 - _STRAY) * len(samples)


def _splits(tops: set[str], origin: str, wanted: Wanted) -> dict[str, str]:
    """Top folders and the split that each means."""
    found = {name: SPLITS[name] for name in sorted(tops) if name in SPLITS}
    unknown = sorted(tops - set(SPLITS))
    if not found:
        hint = ""
        if unknown:
            hint = f" there are only {_some(unknown)}: are these classes? Put their folders into a folder named train"
        raise DataError(f"{origin}: no split found; {wanted.expected};{hint or ' it holds no such folder'}")
    if unknown:
        raise DataError(f"{origin}: {unknown[0]!r} is not the name of a split, {suggest(unknown[0], list(SPLITS))}")
    if len(set(found.values())) < len(found):
        raise DataError(f"{origin}: {_some(sorted(found))} mean the same split twice; keep one folder for each")
    if "train" not in found:
        raise DataError(f"{origin}: no train folder, only {_some(sorted(found))}; {wanted.expected}")
    return found


def _wrapper(listing: Listing, wanted: Wanted) -> str:
    """'name/' if everything stands in one folder around the splits, as many zips are made."""
    tops = {name.split("/")[0] for name in listing.files if wanted.has(tuple(name.split("/")))}
    if len(tops) != 1 or tops & set(SPLITS):
        return ""
    wrapper = f"{tops.pop()}/"
    inner = {name.removeprefix(wrapper).split("/")[0] for name in listing.files if name.startswith(wrapper)}
    return wrapper if inner & set(SPLITS) else ""


def _hidden(name: str) -> bool:
    return any((part.startswith(".") and part != ".") or part == "__MACOSX" for part in name.split("/"))


def _noted(what: str, names: Sequence[str]) -> list[str]:
    return [f"skipped {len(names)} {what}: {_some(names)}"] if names else []


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(repr(name) for name in names[:_SHOWN]) + more
