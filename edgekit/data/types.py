"""Types of this package: the options of a source (`SourceConfig`), its samples (`Pools`), and their splits (`Data`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from edgekit.core.config import StrictModel
from edgekit.core.errors import DataError
from edgekit.core.hashing import canonical_json
from edgekit.core.tasks import Task

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["image", "vector", "audio", "window", "text", "tensors"]
ProgressCallback = Callable[[int, int], None]
"""Called with (done, total) while a source does lengthy work."""

DEFAULT_CALIBRATION_SAMPLES = 200
"""Default number of calibration samples. It applies if at least as many samples remain for training."""

_CHUNK_BYTES = 16 << 20


class SourceConfig(StrictModel):
    """Options that all sources have. A source's own class restricts `source` to its name."""

    source: str = Field(description="name of the data source, one of those below")
    task: Task = Field("classification", description="what the labels mean; belongs at the top level of a config")
    split_seed: int = Field(0, ge=0, lt=2**31, description="seed of the division into splits")
    validation_fraction: float = Field(
        0.2, gt=0, lt=1, description="share of a pool that becomes validation, if the source has none"
    )
    validation_from: Literal["train", "test"] = Field(
        "train",
        description="pool that validation is taken from; test suits a model that was trained elsewhere on all of train",
    )
    test_fraction: float = Field(
        0.2, gt=0, lt=1, description="share of the train pool that becomes test, if the source has none"
    )
    calibration_samples: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="samples taken out of train for calibration, classes balanced; none: 200, or a quarter of "
        "train if it has fewer than 400",
    )
    limit: int | None = Field(
        None,
        ge=10,
        description="largest train pool, stratified; validation and test shrink in proportion",
    )
    overlap: Literal["error", "drop"] = Field(
        "error", description="a sample that is in two splits: stop with an error, or drop it from the earlier split"
    )

    @property
    def raw_shape(self) -> tuple[int, ...] | None:
        """Shape of a raw sample if the options alone determine it. None if it depends on the samples."""
        return None

    @property
    def class_order(self) -> tuple[str, ...] | None:
        """All classes in the order of a model file's outputs, if the options name them; see `normalize_pools`."""
        return None

    @model_validator(mode="after")
    def _leave_training_samples(self) -> SourceConfig:
        if self.validation_fraction + self.test_fraction > 0.8:
            raise ValueError(
                f"validation_fraction {self.validation_fraction} and test_fraction {self.test_fraction} "
                "together take more than 0.8 of the samples; lower one of them"
            )
        return self


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and labels.

    `x` (n, *sample) are raw samples, possibly memory-mapped: uint8 HWC images, float32 vectors, audio and windows
    (time, channels), or int32 token ids. `y` are their labels: (n,) int64 for classification and anomaly detection, (n,
    labels) int64 for several labels at once, (n, values) float32 for a regression, and (n, height, width) uint8 for a
    segmentation.

    `groups` (n,) are integers, equal for samples that were recorded together, which stay in one split. `starts` (n,)
    int64 is the time at which each window begins, counted in samples of audio or rows of a recording. It is None if the
    times are not known or windows were removed.
    """

    x: np.ndarray
    y: np.ndarray
    groups: np.ndarray | None = None
    starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, indices: np.ndarray) -> Split:
        """Return a copy of the samples at `indices`, in that order. A copy of a large memory map is stored on disk."""
        from edgekit.data import memory_map

        groups, starts = (None if each is None else each[indices] for each in (self.groups, self.starts))
        return Split(memory_map.take(self.x, indices), self.y[indices], groups, starts)

    def concatenate(self, other: Split) -> Split:
        """Return both splits as one, this split's samples first. Groups and times are kept if both splits have them."""
        import numpy as np

        from edgekit.data import memory_map

        x, y = memory_map.join(self.x, other.x), np.concatenate([self.y, other.y])
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("groups", "starts"))
        groups, starts = (None if a is None or b is None else np.concatenate([a, b]) for a, b in pairs)
        return Split(x, y, groups, starts)


@dataclass(frozen=True)
class Keypoints:
    """The names of the keypoints that each object has, and the pairs of indices between which lines are drawn."""

    names: tuple[str, ...]
    skeleton: tuple[tuple[int, int], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the value of `keypoints` in a manifest."""
        return {"names": list(self.names), "skeleton": [list(line) for line in self.skeleton]}


@dataclass(frozen=True, eq=False)
class Pools:
    """The samples that a source returns, before they are divided into the four splits.

    `validation` and `test` are None if the source has no such split. `columns` are the names of the channels.

    `input_path` lists the steps from a file to a sample (`edgekit/runner/input_path.py`). It is None if there are no
    files. `members` are files that these steps read, by their names in a bundle. `background` is the class that is not
    an event, if the source knows one. `tensors` describe the tensors that a sample consists of, as in a manifest.
    `keypoints` are those of the task of that name.
    """

    train: Split
    validation: Split | None
    test: Split | None
    classes: tuple[str, ...]
    kind: Kind
    notes: tuple[str, ...] = ()
    sample_rate_hz: int | None = None
    columns: tuple[str, ...] | None = None
    input_path: tuple[dict[str, Any], ...] | None = None
    members: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    background: str | None = None
    tensors: tuple[dict[str, Any], ...] | None = None
    keypoints: Keypoints | None = None

    def splits(self) -> dict[str, Split]:
        """Return the existing splits by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    def with_splits(self, splits: dict[str, Split], *notes: str) -> Pools:
        """Return a copy of the pools with other samples and additional notes."""
        return replace(
            self,
            train=splits["train"],
            validation=splits.get("validation"),
            test=splits.get("test"),
            notes=(*self.notes, *notes),
        )


@dataclass(frozen=True, eq=False)
class Data:
    """Four disjoint splits. `digest` covers every array and the class names, even if test is withheld.

    `classes` are the names of a network's outputs. In a regression they name the values, and with several labels at
    once the labels.
    """

    train: Split
    calibration: Split
    validation: Split
    classes: tuple[str, ...]
    kind: Kind
    digest: str
    notes: tuple[str, ...] = ()
    held_out: Split | None = field(default=None, repr=False)
    sample_rate_hz: int | None = None
    columns: tuple[str, ...] | None = None
    input_path: tuple[dict[str, Any], ...] | None = None
    members: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    task: Task = "classification"
    background: str | None = None
    tensors: tuple[dict[str, Any], ...] | None = None
    keypoints: Keypoints | None = None

    @property
    def test(self) -> Split:
        """The test split, which benchmark reads once. Raises DataError if it is withheld."""
        if self.held_out is None:
            raise DataError(
                "the test split is withheld here; base decisions on validation, because only benchmark "
                "reads test, and only once"
            )
        return self.held_out

    def withhold_test(self) -> Data:
        """Return the same data without the test split, for every stage before benchmark."""
        return replace(self, held_out=None)

    @property
    def raw_shape(self) -> tuple[int, ...]:
        """Shape of one raw sample: (height, width, channels), (features,) or (time, channels)."""
        return tuple(int(size) for size in self.train.x.shape[1:])

    @property
    def keypoint_count(self) -> int:
        """The number of keypoints of each object, 0 for other tasks."""
        return len(self.keypoints.names) if self.keypoints else 0

    @property
    def raw_dtype(self) -> str:
        """The dtype of a raw sample: uint8, float32 or, for token ids, int32."""
        return str(self.train.x.dtype)

    @property
    def sample_description(self) -> str:
        """Kind, shape and dtype of one raw sample, or of each of its tensors."""
        if self.tensors:
            descriptions = [
                f"{tensor['name']} {'×'.join(map(str, tensor['shape']))} {tensor['dtype']}" for tensor in self.tensors
            ]
            return f"{len(descriptions)} tensors ({', '.join(descriptions)})"
        return f"{self.kind} {'×'.join(map(str, self.raw_shape))} {self.raw_dtype}"

    @property
    def vocabulary_size(self) -> int:
        """The number of token ids in the vocabulary. Raises DataError if the samples are not texts."""
        from edgekit.runner import input_path, tokenization

        step = input_path.find_step(self.input_path or (), "tokenize")
        if step is None:
            raise DataError(f"samples of kind {self.kind} have no vocabulary; only texts have one")
        return tokenization.read_tokenizer(self.members[step["vocabulary"]]).size

    @property
    def raw_range(self) -> list[float] | None:
        """The range of float samples: [0, 1] or [-1, 1] if all samples outside the test split lie in it.

        The range of token ids is that of the vocabulary. Windows have no range, because a sensor may later show 1.2 g
        without being faulty. Vectors for anomaly detection have none either, because unusual values are what it looks
        for. If there are several tensors, each has its own range.
        """
        if self.kind == "text":
            return [0, self.vocabulary_size - 1]
        expects_unusual = self.task == "anomaly" and self.kind == "vector"
        if self.raw_dtype != "float32" or self.kind in ("window", "tensors") or expects_unusual:
            return None
        splits = (self.train, self.calibration, self.validation)
        return usual_range([split.x for split in splits if len(split)])


def usual_range(arrays: Sequence[np.ndarray]) -> list[float] | None:
    """Return [0, 1] or [-1, 1] if all floats lie in it, otherwise None. A device refuses values outside this range."""
    lowest, highest = min(float(each.min()) for each in arrays), max(float(each.max()) for each in arrays)
    return next((pair for pair in ([0.0, 1.0], [-1.0, 1.0]) if pair[0] <= lowest and highest <= pair[1]), None)


def digest_splits(
    splits: dict[str, Split],
    classes: tuple[str, ...],
    kind: str,
    rate_hz: int | None = None,
    columns: tuple[str, ...] | None = None,
    input_path: tuple[dict[str, Any], ...] | None = None,
    members: Mapping[str, bytes] | None = None,
    background: str | None = None,
    tensors: tuple[dict[str, Any], ...] | None = None,
    keypoints: Keypoints | None = None,
) -> str:
    """Return the hex SHA-256 of everything that defines the samples, and of each split.

    It covers classes, kind, rate, columns, tensors, keypoints, the input path with the files that it reads
    (`members`), and the temporal order if it is known.
    """
    more: dict[str, Any] = {} if rate_hz is None else {"sample_rate_hz": rate_hz}
    more |= {} if columns is None else {"columns": list(columns)}
    more |= {} if input_path is None else {"input_path": list(input_path)}
    more |= {} if tensors is None else {"tensors": list(tensors)}
    more |= {} if keypoints is None else {"keypoints": keypoints.to_dict()}
    more |= {} if background is None else {"background": background}
    more |= {"members": {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}} if members else {}
    sha = hashlib.sha256(canonical_json({"classes": list(classes), "kind": kind, **more}))
    for name, split in splits.items():
        for part, array in (("x", split.x), ("y", split.y)):
            _add(sha, [name, part], array)
        if split.starts is not None and split.groups is not None:
            for part, array in (("starts", split.starts), ("groups", split.groups)):
                _add(sha, [name, part], array)
    return sha.hexdigest()


def _add(sha: hashlib._Hash, name: list[str], array: np.ndarray) -> None:
    import numpy as np

    sha.update(canonical_json([*name, str(array.dtype), list(array.shape)]))
    little = array.dtype.newbyteorder("<")
    rows = max(1, _CHUNK_BYTES // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        sha.update(np.ascontiguousarray(array[start : start + rows], dtype=little).data)
