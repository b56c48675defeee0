"""The converted files of a trial: how accurate each is on validation, through the runner's own backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError
from edgekit.core.hashing import digest, sha256_file
from edgekit.core.tasks import SampleResults, SampleScores
from edgekit.core.variants import Variant, open_variant, read_variants
from edgekit.data import Data
from edgekit.models.from_artifact import open_model
from edgekit.models.store import ModelSpec
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.training import predict

OF_TRIAL = ("student", "pruned", "sparse")
"""Networks of a trial. The baseline is none: it is the anchor."""
DRAWS = 400


@dataclass(frozen=True)
class Content:
    """Files that one interpreter opens: where they lie, their tensors, and the digest of their names and bytes."""

    target: str
    paths: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sha256: str

    @property
    def key(self) -> str:
        """What a measured value belongs to."""
        return f"{self.target}:{self.sha256}"

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(Path(path).stat().st_size for path in self.paths)

    @classmethod
    def of(
        cls, target: str, paths: Sequence[Path], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> Content:
        """Of files that lie there now."""
        sha256 = digest([[path.name, sha256_file(path)] for path in sorted(paths)])
        return cls(target, tuple(map(str, paths)), tuple(inputs), tuple(outputs), sha256)

    def is_whole(self) -> bool:
        """Whether the files are there, with the bytes they had."""
        paths = [Path(path) for path in self.paths]
        return all(path.is_file() for path in paths) and self == Content.of(
            self.target, paths, self.inputs, self.outputs
        )

    def to_json(self) -> dict[str, Any]:
        """As a work's arguments hold it."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Content:
        """The opposite."""
        tensors = {name: tuple(TensorSpec(**each) for each in fields[name]) for name in ("inputs", "outputs")}
        return cls(fields["target"], tuple(fields["paths"]), sha256=fields["sha256"], **tensors)


def evaluate(convert: Artifact, data: Data, targets: Sequence[str], confidence: float) -> list[dict[str, Any]]:
    """A row for each file of the trial on `targets`: accuracy on validation with its interval, drop, bytes, content.

    `confidence` is that of the drop's bound and of the interval.
    """
    reference, spec = _baseline(convert.ancestor("profile"), data)
    wanted = [each for each in read_variants(convert) if each.target in targets and each.model in OF_TRIAL]
    return [_row(convert, variant, data, spec, reference, confidence) for variant in wanted]


def baseline_accuracy(profile: Artifact, data: Data) -> float:
    """The baseline's on validation, which every drop is counted from."""
    return round(tasks.accuracy(_baseline(profile, data)[0]), 6)


def _baseline(profile: Artifact, data: Data) -> tuple[SampleResults, ModelSpec]:
    model, spec = open_model(profile)
    return _score(predict.logits(model, data.validation.x, spec.preprocess), data, spec), spec


def _row(
    convert: Artifact, variant: Variant, data: Data, spec: ModelSpec, reference: SampleResults, confidence: float
) -> dict[str, Any]:
    backend, layout = open_variant(convert, variant), variant.input.layout
    outputs = [backend.run(to_layout(apply(spec.preprocess, sample[None]), layout)) for sample in data.validation.x]
    answers = np.concatenate(outputs)
    if not np.isfinite(answers).all():
        raise StageError(f"{variant.name}: NaN or infinite outputs on validation")
    found = _score(answers, data, spec)
    drop = tasks.drop(reference, found, confidence)
    content = Content.of(
        variant.target, [convert.path / name for name in variant.files], variant.inputs, variant.outputs
    )
    return {
        "name": variant.name,
        "target": variant.target,
        "accuracy": round(tasks.accuracy(found), 6),
        "interval": interval(found, confidence),
        "drop_pp": drop.drop_pp,
        "bound_pp": drop.bound_pp,
        "bytes": variant.bytes,
        "content": content.to_json(),
    }


def _score(outputs: np.ndarray, data: Data, spec: ModelSpec) -> SampleResults:
    inputs = predict.inputs_for(spec.task, data.validation.x, spec.preprocess)
    scored: SampleResults = tasks.load_task(spec.task).score_samples(outputs, inputs, data.validation.y)
    return scored


def interval(answered: SampleResults, confidence: float) -> list[float]:
    """Both ends for the accuracy, fractions: Wilson's (1927) for right and wrong answers, else of a bootstrap."""
    if not isinstance(answered, SampleScores):
        right, n = float(np.mean(answered)), len(answered)
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        middle, half = right + z * z / (2 * n), z * (right * (1 - right) / n + z * z / (4 * n * n)) ** 0.5
        ends = [(middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)]
    else:
        random, n = np.random.default_rng(0), len(answered)
        drawn = (SampleScores(answered.task, answered.values[random.integers(0, n, n)]) for _ in range(DRAWS))
        ends = list(np.quantile([tasks.accuracy(each) for each in drawn], ((1 - confidence) / 2, (1 + confidence) / 2)))
    return [round(float(end), 6) for end in ends]
