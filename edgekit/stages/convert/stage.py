"""Run the convert stage: convert in child processes, check every boundary, and list the variants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.core import artifacts, tasks
from edgekit.core.schema.conversion import ConvertedVariant, ConvertMetrics
from edgekit.core.schema.variants import LeftOutVariant
from edgekit.data import splits
from edgekit.models import store
from edgekit.stages.convert import boundary_checks, calibration_check, numerics, plan
from edgekit.stages.convert.checker import BoundaryChecker
from edgekit.stages.convert.config import LIBRARIES, ConvertConfig
from edgekit.stages.convert.plan import SPEC, distinct_networks
from edgekit.targets import bias_correction, evaluate, launch
from edgekit.targets.jobs import ConversionJob

if TYPE_CHECKING:
    from edgekit.core.artifacts import Artifact
    from edgekit.data import Data

VARIANTS, LEFT_OUT = "variants.json", "left_out.json"


def convert(source: Artifact, data: Data, config: ConvertConfig, out: Path) -> Artifact:
    """Run the convert stage; see `edgekit.stages.convert.run`."""
    artifacts.begin(out)
    to_convert, notes = distinct_networks(source, config.models)
    steps = json.loads((to_convert[0].folder / SPEC).read_text(encoding="utf-8"))["preprocess"]
    data = calibration_check.without_clipped_anomalies(data, steps)
    check_inputs = evaluate.network_inputs(evaluate.spread_samples(data.validation, config.check_samples), steps)
    checkers = {network.name: BoundaryChecker(network, check_inputs, config, task=data.task) for network in to_convert}
    with tempfile.TemporaryDirectory(prefix="edgekit-convert-") as folder, ThreadPoolExecutor(1) as pool:
        # The converters have processes of their own, so these checks run at the same time.
        checks = pool.submit(
            lambda: [row for each in checkers.values() for row in check_inputs_and_answers(each, data)]
        )
        scratch = Path(folder)
        calibration = scratch / "calibration.npy"
        samples = evaluate.spread_samples(data.calibration, config.calibration_samples)
        calibration_inputs = evaluate.network_inputs(samples, steps)
        np.save(calibration, calibration_inputs, allow_pickle=False)
        jobs, corrected = _correct_biases(
            [network.jobs(config, calibration, out) for network in to_convert], calibration_inputs, scratch
        )
        records, seconds = _convert_all(jobs, checkers, scratch, config, checks)
    boundary_rows = [*plan.merged_rows(source, to_convert), *checks.result()]
    variants = [record for record in records if plan.is_converted(record)]
    left_out = [record for record in records if plan.is_left_out(record)]
    not_offered = [row for network in to_convert for row in plan.not_offered(network, config)]
    empty = plan.empty_targets(config, variants, [*left_out, *not_offered])
    for target, reason in empty.items():
        print(f"convert: no file for {target}: {reason}; the config names no targets, so the run continues without it")
    notes += [f"{each['name']}: fold_preprocess: {each['folding']}" for each in variants if "folding" in each]
    notes += [f"{one['name']}: sparse_weights: {one['sparse_weights']}" for one in variants if "sparse_weights" in one]
    last_of = {one["name"]: one["boundaries"][-1] for one in variants}
    amplifying = [f"{name}: {last['conditioning']}" for name, last in last_of.items() if "conditioning" in last]
    notes += corrected
    for note in (*corrected, *amplifying):
        print(f"convert: {note}")
    notes += amplifying
    artifacts.write_json(out / VARIANTS, [_machine_independent(variant) for variant in variants])
    artifacts.write_json(out / LEFT_OUT, plan.without_reasons([*left_out, *not_offered]))
    artifacts.write_json(out / artifacts.EVIDENCE / LEFT_OUT, [*left_out, *not_offered])
    artifacts.write_json(out / artifacts.EVIDENCE / "timings.json", {"convert_s": seconds})
    return artifacts.seal(
        out,
        stage="convert",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={
            **_metrics(variants, left_out, notes, len(check_inputs)),
            **({"targets_left_out": empty} if empty else {}),
            "not_offered": not_offered,
            "ends": boundary_rows,
        },
        libraries=LIBRARIES,
    )


def _correct_biases(
    jobs_by_network: list[list[ConversionJob]], inputs: np.ndarray, scratch: Path
) -> tuple[list[ConversionJob], list[str]]:
    """Return all jobs, with corrected biases for the networks that need them, and a note for each such network."""
    corrected = [bias_correction.correct_jobs(jobs, inputs, scratch) for jobs in jobs_by_network]
    return [job for each in corrected for job in each.jobs], [each.note for each in corrected if each.note]


def check_inputs_and_answers(checker: BoundaryChecker, data: Data) -> Iterator[dict[str, Any]]:
    """Check the inputs, the calibrated ranges and the answers of a network, and yield a record of each check.

    Raises
    ------
    ConversionError
        One of them is wrong.
    DataError
        The calibration and validation samples overlap.
    """
    config, folder = checker.config, checker.network.folder
    spec = json.loads((folder / SPEC).read_text(encoding="utf-8"))
    steps, name = spec["preprocess"], {"model": checker.network.name}
    splits.check_disjoint({"calibration": data.calibration.x, "validation": data.validation.x})
    raw = evaluate.spread_samples(data.validation, config.check_samples)
    preparer, trained = boundary_checks.training_inputs(raw, steps, config.reference_preprocess)
    tolerance = numerics.Tolerance(0.0, config.input_min_snr_db)
    yield {
        **name,
        **boundary_checks.check_input(
            preparer, trained, boundary_checks.runner_inputs(raw, steps, spec["raw"]), tolerance
        ),
    }
    labels = data.validation.y[evaluate.spread_indices(data.validation, config.check_samples)]
    calibration_indices = evaluate.spread_indices(data.calibration, config.calibration_samples)
    yield {
        **name,
        **calibration_check.check_calibration(
            store.load(folder)[0],
            evaluate.network_inputs(data.calibration.x[calibration_indices], steps),
            *_calibration_strata(data, calibration_indices),
            calibration_check.normal_inputs(checker.inputs, labels, data.task),
            config.calibration_max_outside,
            config.calibration_min_used,
        ),
    }
    gives_probabilities = store.read_spec(folder).gives_probabilities
    answers = checker.reference, labels, data.classes, data.task, checker.inputs
    yield {**name, **boundary_checks.check_answer(*answers, gives_probabilities=gives_probabilities)}


def _calibration_strata(data: Data, indices: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the stratum of each calibration sample, and the number of strata in train.

    In a classification, the strata are the classes.
    """
    strata = tasks.load_task(data.task).strata
    return strata(data.calibration.y[indices]), len(np.unique(strata(data.train.y)))


def _convert_all(
    jobs: list[ConversionJob],
    checkers: dict[str, BoundaryChecker],
    scratch: Path,
    config: ConvertConfig,
    checks: Future[Any],
) -> tuple[list[ConvertedVariant | LeftOutVariant], dict[str, float]]:
    """Run all jobs; return the records of their steps in order, and the seconds that each variant took.

    The first file is checked when `checks` have ended, and their error ends the conversions.
    With `strict`, ConversionError is raised at the first variant that is left out, and nothing more is converted.
    """
    records: dict[ConversionJob, list[ConvertedVariant | LeftOutVariant]] = {}
    seconds: dict[str, float] = {}

    def on_outcomes(job: ConversionJob, outcomes: list[launch.Outcome]) -> None:
        checks.result()
        records[job] = list(checkers[job.model].records(job, outcomes))
        left_out = [record for record in records[job] if plan.is_left_out(record)]
        if config.strict:
            plan.fail_if_left_out(left_out)
        for step, outcome in zip(job.steps, outcomes, strict=True):
            if isinstance(outcome, launch.ConvertedStep):
                seconds[step.out.name] = outcome.seconds

    launch.convert_all(jobs, scratch, config.timeout_s, on_outcomes)
    return [record for job in jobs for record in records[job]], seconds


def _machine_independent(variant: ConvertedVariant) -> ConvertedVariant:
    """Return the record without the redundant operators of compiled models, because these depend on the machine."""
    return {**variant, "debris": [one for one in variant["debris"] if not one["compiled"]]}


def _metrics(
    variants: list[ConvertedVariant], left_out: list[LeftOutVariant], notes: list[str], check_samples: int
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
        "left_out": left_out,
        "notes": notes,
    }
