"""Find out which outputs of a detector lost its accuracy in int8: the boxes or the scores, and on which grid.

The boxes of the float file are combined with the scores of the int8 file, and the other way round
(`core.box_branches`), and decoded and scored as usual.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from edgekit.core import progress, tasks
from edgekit.core.artifacts import Artifact
from edgekit.core.box_branches import Part, combinations
from edgekit.core.config import Budget
from edgekit.core.schema.branches import BranchLosses, ReplacedBranch
from edgekit.core.schema.variants import ModelFacts, VariantFacts
from edgekit.core.tasks import SampleScores
from edgekit.core.variants import Variant, open_variant, read_variants
from edgekit.data import Split
from edgekit.models import store
from edgekit.runner.preprocess.transform import apply, to_layout

MIN_RECOVERED = 0.5
"""Share of the loss that outputs must recover to have caused it."""


def branch_losses(
    source: Artifact, rows: Sequence[ModelFacts], split: Split, spec: store.ModelSpec, budget: Budget, threads: int
) -> list[BranchLosses]:
    """Return a record for each int8 detector with several outputs that loses more than the budget on a split.

    `rows` has the facts about each variant. Detectors whose float file is missing are left out.
    """
    if spec.task != "detection":
        return []
    variants = {variant.name: variant for variant in read_variants(source)}
    facts = {row["name"]: cast("VariantFacts", row) for row in rows if row["name"] in variants}
    floats = {(each.model, each.target): each for each in variants.values() if each.precision == "fp32"}
    lost = [
        variant
        for name, variant in variants.items()
        if variant.precision == "int8"
        and len(variant.outputs) > 1
        and facts[name]["drop_pp"] > budget.accuracy_drop_pp
        and (variant.model, variant.target) in floats
    ]
    return [
        _losses(source, variant, floats[variant.model, variant.target], facts, split, spec, threads)
        for variant in progress.track(lost, "variant", lambda variant: f"finding what {variant.name} lost")
    ]


def _losses(
    source: Artifact,
    variant: Variant,
    reference: Variant,
    facts: Mapping[str, VariantFacts],
    split: Split,
    spec: store.ModelSpec,
    threads: int,
) -> BranchLosses:
    backends = [(open_variant(source, each, threads), each.input.layout) for each in (reference, variant)]
    task = tasks.load_task(spec.task)
    values: dict[Part, list[np.ndarray]] = {}
    for sample, labels in zip(split.x, split.y, strict=True):
        x = apply(spec.preprocess, sample[None])
        expected, answer = (backend.run(to_layout(x, layout)) for backend, layout in backends)
        for part, combined in combinations(expected, answer, (sample.shape[0], sample.shape[1])).items():
            values.setdefault(part, []).append(task.score_samples(combined, None, labels[None]).values)
    replaced: list[ReplacedBranch] = [
        {
            "branch": branch,
            "stride_pixels": stride,
            "accuracy": tasks.accuracy(SampleScores(spec.task, np.concatenate(each))),
        }
        for (branch, stride), each in values.items()
    ]
    accuracies = [facts[each.name]["accuracy_validation"] for each in (variant, reference)]
    whole = {row["branch"]: row["accuracy"] for row in replaced if row["stride_pixels"] is None}
    causes = [branch for branch, reached in whole.items() if _share(reached, *accuracies) >= MIN_RECOVERED]
    return {
        "name": variant.name,
        "reference": reference.name,
        "accuracy": accuracies[0],
        "reference_accuracy": accuracies[1],
        "lost_by": causes[0] if len(causes) == 1 else "both",
        "replaced": replaced,
    }


def _share(reached: float, accuracy: float, reference: float) -> float:
    """Return the share of the loss that an accuracy makes up for."""
    return (reached - accuracy) / (reference - accuracy) if reference > accuracy else 0.0
