"""The stage from its source to its seal: convert in children, check every boundary here, list the variants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core import artifacts, tasks
from edgekit.core.schema.conversion import ConvertedVariant, ConvertMetrics
from edgekit.core.schema.variants import LeftOut
from edgekit.data import splits
from edgekit.models import store
from edgekit.stages.convert import boundary_checks, calibration_check, numerics, plan
from edgekit.stages.convert.checker import Checker
from edgekit.stages.convert.config import LIBRARIES, ConvertConfig
from edgekit.stages.convert.plan import SPEC, networks
from edgekit.targets import evaluate, launch
from edgekit.targets.jobs import Job

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact
    from edgekit.data import Data

VARIANTS, LEFT_OUT = "variants.json", "left_out.json"


def convert(source: Artifact, data: Data, config: ConvertConfig, out: Path) -> Artifact:
    """Run the stage; see `edgekit.stages.convert.run`."""
    artifacts.begin(out)
    chosen, notes = networks(source, config.models)
    steps = json.loads((chosen[0].folder / SPEC).read_text(encoding="utf-8"))["preprocess"]
    data = calibration_check.without_clipped(data, steps)
    compared = evaluate.network_inputs(evaluate.spread(data.validation, config.check_samples), steps)
    checkers = {network.name: Checker(network, compared, config, task=data.task) for network in chosen}
    ends = [*plan.merged_rows(source, chosen), *(row for each in checkers.values() for row in check_ends(each, data))]
    with tempfile.TemporaryDirectory(prefix="edgekit-convert-") as folder:
        scratch = Path(folder)
        calibration = scratch / "calibration.npy"
        samples = evaluate.spread(data.calibration, config.calibration_samples)
        np.save(calibration, evaluate.network_inputs(samples, steps), allow_pickle=False)
        jobs = [job for network in chosen for job in network.jobs(config, calibration, out)]
        records, seconds = _convert_all(jobs, checkers, scratch, config)
    variants = [record for record in records if plan.is_made(record)]
    lost = [record for record in records if plan.is_lost(record)]
    not_offered = [row for network in chosen for row in plan.not_offered(network, config)]
    empty = plan.empty_targets(config, variants, [*lost, *not_offered])
    for target, reason in empty.items():
        print(f"convert: no file for {target}: {reason}; the config names no targets, so the run goes on without it")
    notes += [f"{each['name']}: fold_preprocess: {each['folding']}" for each in variants if "folding" in each]
    notes += [f"{one['name']}: sparse_weights: {one['sparse_weights']}" for one in variants if "sparse_weights" in one]
    last_of = {one["name"]: one["boundaries"][-1] for one in variants}
    amplifying = [f"{name}: {last['conditioning']}" for name, last in last_of.items() if "conditioning" in last]
    for note in amplifying:
        print(f"convert: {note}")
    notes += amplifying
    artifacts.write_json(out / VARIANTS, [_machine_independent(variant) for variant in variants])
    artifacts.write_json(out / LEFT_OUT, plan.without_reasons([*lost, *not_offered]))
    artifacts.write_json(out / artifacts.EVIDENCE / LEFT_OUT, [*lost, *not_offered])
    artifacts.write_json(out / artifacts.EVIDENCE / "timings.json", {"convert_s": seconds})
    return artifacts.seal(
        out,
        stage="convert",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **_metrics(variants, lost, notes, len(compared)),
            **({"targets_left_out": empty} if empty else {}),
            "not_offered": not_offered,
            "ends": ends,
        },
        libraries=LIBRARIES,
    )


def check_ends(checker: Checker, data: Data) -> Iterator[dict[str, Any]]:
    """The boundaries before and behind the converters, a row each; ConversionError or DataError where one fails."""
    config, folder = checker.config, checker.network.folder
    spec = json.loads((folder / SPEC).read_text(encoding="utf-8"))
    steps, name = spec["preprocess"], {"model": checker.network.name}
    splits.check_disjoint({"calibration": data.calibration.x, "validation": data.validation.x})
    raw = evaluate.spread(data.validation, config.check_samples)
    who, trained = boundary_checks.by_training(raw, steps, config.reference_preprocess)
    tolerance = numerics.Tolerance(0.0, config.input_min_snr_db)
    yield {
        **name,
        **boundary_checks.check_input(who, trained, boundary_checks.by_runner(raw, steps, spec["raw"]), tolerance),
    }
    labels = data.validation.y[evaluate.places(data.validation, config.check_samples)]
    places = evaluate.places(data.calibration, config.calibration_samples)
    yield {
        **name,
        **calibration_check.check_calibration(
            store.load(folder)[0],
            evaluate.network_inputs(data.calibration.x[places], steps),
            *_calibration_strata(data, places),
            calibration_check.ordinary(checker.inputs, labels, data.task),
            config.calibration_max_outside,
            config.calibration_min_used,
        ),
    }
    inside = store.read_spec(folder).gives_probabilities
    answers = checker.reference, labels, data.classes, data.task, checker.inputs
    yield {**name, **boundary_checks.check_answer(*answers, softmax_inside=inside)}


def _calibration_strata(data: Data, places: np.ndarray) -> tuple[np.ndarray, int]:
    """What kind each calibration sample is of, as the splits were divided, and how many kinds train has."""
    strata = tasks.named(data.task).strata
    return strata(data.calibration.y[places]), len(np.unique(strata(data.train.y)))


def _convert_all(
    jobs: list[Job], checkers: dict[str, Checker], scratch: Path, config: ConvertConfig
) -> tuple[list[ConvertedVariant | LeftOut], dict[str, float]]:
    """Records of all steps in the order of the jobs, and seconds by variant.

    Where the config is strict, the first that is left out stops the rest.
    """
    records: dict[Job, list[ConvertedVariant | LeftOut]] = {}
    seconds: dict[str, float] = {}

    def on_outcomes(job: Job, outcomes: list[launch.Outcome]) -> None:
        records[job] = list(checkers[job.model].records(job, outcomes))
        lost = [record for record in records[job] if plan.is_lost(record)]
        if config.strict:
            plan.refuse_any(lost)
        for step, outcome in zip(job.steps, outcomes, strict=True):
            if isinstance(outcome, launch.Converted):
                seconds[step.out.name] = outcome.seconds

    launch.convert_all(jobs, scratch, config.timeout_s, on_outcomes)
    return [record for job in jobs for record in records[job]], seconds


def _machine_independent(variant: ConvertedVariant) -> ConvertedVariant:
    """The record without what depends on this machine: the redundant operators in what its interpreter compiled."""
    return {**variant, "debris": [one for one in variant["debris"] if not one["compiled"]]}


def _metrics(
    variants: list[ConvertedVariant], lost: list[LeftOut], notes: list[str], check_samples: int
) -> ConvertMetrics:
    last = {variant["name"]: variant["boundaries"][-1] for variant in variants}
    return {
        "variants": len(variants),
        "check_samples": check_samples,
        "lowest_top1_agreement": min(boundary["top1_agreement"] for boundary in last.values()),
        "lowest_snr_db": min(boundary["snr_db"] for boundary in last.values()),
        "bytes": {variant["name"]: variant["bytes"] for variant in variants},
        "float_ops": {variant["name"]: variant["float_ops"] for variant in variants if variant["float_ops"]},
        "debris": {variant["name"]: variant["debris"] for variant in variants if variant["debris"]},
        "left_out": lost,
        "notes": notes,
    }
