"""The converted files of a trial, and their accuracy on validation, measured with the runner's own backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core import tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError
from edgekit.core.hashing import digest, sha256_file
from edgekit.core.tasks import SampleResults
from edgekit.core.tasks.accuracy_interval import accuracy_interval
from edgekit.core.variants import Variant, open_variant, read_variants
from edgekit.data import Data
from edgekit.models.from_artifact import open_model
from edgekit.models.store import ModelSpec
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.preprocess.transform import apply, to_layout
from edgekit.training import predict

TRIAL_MODELS = ("student", "pruned", "sparse")
"""Networks that belong to a trial. The baseline is not one of them, because its files are made once for the study."""


@dataclass(frozen=True)
class ModelFiles:
    """Files that one interpreter opens together: paths, tensors, and a digest of their names and content."""

    target: str
    paths: tuple[str, ...]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sha256: str

    @property
    def key(self) -> str:
        """Identifies the files in the measurements of a study."""
        return f"{self.target}:{self.sha256}"

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(Path(path).stat().st_size for path in self.paths)

    @classmethod
    def from_paths(
        cls, target: str, paths: Sequence[Path], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> ModelFiles:
        """Describe existing files."""
        sha256 = digest([[path.name, sha256_file(path)] for path in sorted(paths)])
        return cls(target, tuple(map(str, paths)), tuple(inputs), tuple(outputs), sha256)

    def is_intact(self) -> bool:
        """Whether all files exist and have the content that they had when they were described."""
        paths = [Path(path) for path in self.paths]
        return all(path.is_file() for path in paths) and self == ModelFiles.from_paths(
            self.target, paths, self.inputs, self.outputs
        )

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object, for the arguments of a job."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> ModelFiles:
        """Restore files from the fields that `to_json` returned."""
        tensors = {name: tuple(TensorSpec(**each) for each in fields[name]) for name in ("inputs", "outputs")}
        return cls(fields["target"], tuple(fields["paths"]), sha256=fields["sha256"], **tensors)


def evaluate_variants(convert: Artifact, data: Data, targets: Sequence[str], confidence: float) -> list[dict[str, Any]]:
    """Evaluate each file of a trial for `targets`, and return one row for each.

    A row has the accuracy on validation with its interval, the accuracy drop with its upper bound, and the size.
    `confidence` applies to the bound of the drop and to the interval of the accuracy.
    """
    reference, spec = _baseline_scores(convert.ancestor("profile"), data)
    variants = [
        variant for variant in read_variants(convert) if variant.target in targets and variant.model in TRIAL_MODELS
    ]
    return [_variant_row(convert, variant, data, spec, reference, confidence) for variant in variants]


def baseline_accuracy(profile: Artifact, data: Data) -> float:
    """The accuracy of the baseline on validation. Every accuracy drop is relative to it."""
    return round(tasks.accuracy(_baseline_scores(profile, data)[0]), 6)


def _baseline_scores(profile: Artifact, data: Data) -> tuple[SampleResults, ModelSpec]:
    model, spec = open_model(profile)
    return _score(predict.logits(model, data.validation.x, spec.preprocess), data, spec), spec


def _variant_row(
    convert: Artifact, variant: Variant, data: Data, spec: ModelSpec, reference: SampleResults, confidence: float
) -> dict[str, Any]:
    backend, layout = open_variant(convert, variant), variant.input.layout
    outputs = [backend.run(to_layout(apply(spec.preprocess, sample[None]), layout)) for sample in data.validation.x]
    answers = np.concatenate(outputs)
    if not np.isfinite(answers).all():
        raise StageError(f"{variant.name}: NaN or infinite outputs on validation")
    scores = _score(answers, data, spec)
    drop = tasks.drop(reference, scores, confidence)
    files = ModelFiles.from_paths(
        variant.target, [convert.path / name for name in variant.files], variant.inputs, variant.outputs
    )
    return {
        "name": variant.name,
        "target": variant.target,
        "accuracy": round(tasks.accuracy(scores), 6),
        "interval": accuracy_interval(scores, confidence),
        "drop_pp": drop.drop_pp,
        "bound_pp": drop.bound_pp,
        "bytes": variant.bytes,
        "content": files.to_json(),
    }


def _score(outputs: np.ndarray, data: Data, spec: ModelSpec) -> SampleResults:
    inputs = predict.inputs_for(spec.task, data.validation.x, spec.preprocess)
    scores: SampleResults = tasks.load_task(spec.task).score_samples(outputs, inputs, data.validation.y)
    return scores
