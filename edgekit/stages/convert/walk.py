"""The stage from its source to its seal: convert in children, check every boundary here, list the variants."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit import artifact as artifacts
from edgekit import tasks
from edgekit.data import overlap
from edgekit.errors import ConversionError
from edgekit.models import store
from edgekit.stages.convert import LIBRARIES, Config, answer, calibrated, inputs, numerics
from edgekit.stages.convert.plan import SPEC, Network, networks, variant_name
from edgekit.targets import CARRY_RANGES, FURTHER, evaluate, launch, parting
from edgekit.targets.files import Files, Job, Step

if TYPE_CHECKING:
    from edgekit.artifact import Artifact
    from edgekit.data import Data

Progress = Callable[[str], None]
Row = dict[str, Any]

VARIANTS, LEFT_OUT = "variants.json", "left_out.json"

ADVICE = {
    "fp32": "the converter changed what the network computes: replace the layer it got wrong, or drop this target",
    "fp16": "values leave the range of float16: leave fp16 out of convert.precisions, or normalise the input",
    "int8": "raise convert.calibration_samples, let quantize tune the network (QAT), or loosen convert.int8_min_…",
}


@dataclass(frozen=True)
class Checker:
    """One network's outputs on the check samples, and what each boundary must keep.

    `locate` says at which layer a file that left its tolerance parts from the network.
    """

    network: Network
    inputs: np.ndarray
    config: Config
    locate: Callable[[Path, str, Path, Files, np.ndarray, str], str] = parting.find_apart
    task: str = "classification"

    @cached_property
    def reference(self) -> np.ndarray:
        """By PyTorch in float32, (n, …)."""
        return evaluate.torch_outputs(self.network.folder, self.inputs)

    @cached_property
    def tuned_reference(self) -> np.ndarray:
        """The same of the weights that QAT left."""
        return evaluate.torch_outputs(self.network.tuned or self.network.folder, self.inputs)

    def records(self, job: Job, outcomes: list[launch.Outcome]) -> Iterator[Row]:
        """Of one job's files, each boundary held against its tolerance; what was left out has a `reason` instead."""
        float_model: tuple[str, np.ndarray] | None = None
        before: list[Row] = []
        for step, outcome in zip(job.steps, outcomes, strict=True):
            try:
                if isinstance(outcome, launch.LeftOut):
                    raise ConversionError(outcome.reason)
                outputs = self._outputs(job, step, outcome.files)
                last = self._boundary(job, step, outcome.files, outputs, float_model)
            except ConversionError as error:
                if step.precision not in FURTHER:
                    raise
                shutil.rmtree(step.out, ignore_errors=True)
                yield _left_out(job.model, job.target, step.precision, str(error))
                continue
            boundaries = [*before, last] if float_model and step.method != "qat" else [last]
            if step.precision == "fp32":
                float_model, before = (last["to"], outputs), boundaries
            yield _record(job, step, outcome.files, boundaries)

    def _outputs(self, job: Job, step: Step, files: Files) -> np.ndarray:
        what = f"{job.model}, {job.target}, {step.precision}"
        return evaluate.file_outputs(what, job.target, step.out, files, self.inputs)

    def _boundary(
        self, job: Job, step: Step, files: Files, outputs: np.ndarray, float_model: tuple[str, np.ndarray] | None
    ) -> Row:
        if step.method == "qat":
            source, reference = "torch-fp32 (tuned)", self.tuned_reference
        else:
            source, reference = float_model or (self.network.came_as, self.reference)
        result = f"{job.target}-{step.precision}"
        agreement = numerics.compare(reference, outputs, self.task, self.inputs)
        faults = numerics.faults(agreement, self.config.tolerance(step.precision), self.task)
        if faults:
            advice = f"; {ADVICE[step.precision]}" if step.precision in ADVICE else ""
            raise ConversionError(
                f"{self.network.name}: {source} → {result} is outside its tolerance on {len(outputs)} validation "
                f"samples: {'; '.join(faults)} (max |Δ| {agreement.max_abs:.3g}, cosine {agreement.cosine:.4g}); "
                f"{self._located(job, step, files)}{advice}"
            )
        row = {"from": source, "to": result, **asdict(agreement), "ok": True}
        if step.precision == "int8" and step.method != "qat" and step.quantization.ranges == "minmax":
            row["layers_unseen"] = self._no_steep_layer(job, step, files, f"{self.network.name}: {source} → {result}")
        return row

    def _no_steep_layer(self, job: Job, step: Step, files: Files, what: str) -> str:
        """Ranges that hold all that the samples show cost every layer little; one that loses much was made wrongly.

        Returns why the layers could not be looked at, or nothing: the outputs, which ship, agree in any case.
        """
        limit_db = self.config.int8_max_layer_loss_db
        try:
            found = parting.departure(
                step.model_folder, job.target, step.out, files, self.inputs, step.precision, limit_db
            )
        except Exception as error:  # interpreters' errors share no class, and a comparison must not end what is sound
            return f"{type(error).__name__}: {error}"
        if found:
            raise ConversionError(
                f"{what} is inside its tolerance, but one layer loses {found.loss_db:.0f} dB, at most {limit_db:g} dB "
                f"asked: {found.told()}; raise convert.calibration_samples, let quantize tune the network (QAT), or, "
                "where that loss is meant, raise convert.int8_max_layer_loss_db"
            )
        return ""

    def _located(self, job: Job, step: Step, files: Files) -> str:
        if step.precision in FURTHER:
            return "a candidate, whose layers were not looked at"
        return self.locate(step.model_folder, job.target, step.out, files, self.inputs, step.precision)


def walk(source: Artifact, data: Data, config: Config, out: Path, progress: Progress | None = None) -> Artifact:
    """Run the stage; see `edgekit.stages.convert.run`."""
    artifacts.begin(out)
    chosen, notes = networks(source, config.models)
    steps = json.loads((chosen[0].folder / SPEC).read_text())["preprocess"]
    data = calibrated.without_clipped(data, steps)
    compared = evaluate.network_inputs(evaluate.spread(data.validation, config.check_samples), steps)
    checkers = {network.name: Checker(network, compared, config, task=data.task) for network in chosen}
    ends = [row for checker in checkers.values() for row in around(checker, data)]
    with tempfile.TemporaryDirectory(prefix="edgekit-convert-") as folder:
        scratch = Path(folder)
        calibration = scratch / "calibration.npy"
        samples = evaluate.spread(data.calibration, config.calibration_samples)
        np.save(calibration, evaluate.network_inputs(samples, steps), allow_pickle=False)
        jobs = [job for network in chosen for job in network.jobs(config, calibration, out)]
        records, seconds = _convert_all(jobs, checkers, scratch, config.timeout_s, progress)
    variants = [record for record in records if "files" in record]
    left_out = [record for record in records if "reason" in record]
    not_offered = [row for network in chosen for row in _not_offered(network, config)]
    if not variants:
        raise ConversionError(f"convert: every variant was left out; {_told([*left_out, *not_offered][0])}")
    artifacts.write_json(out / VARIANTS, [_of_the_file(variant) for variant in variants])
    # a reason may hold what the next run does not say again: a time, a folder, a converter's last words
    artifacts.write_json(out / LEFT_OUT, [_without_reason(row) for row in (*left_out, *not_offered)])
    artifacts.write_json(out / artifacts.EVIDENCE / LEFT_OUT, [*left_out, *not_offered])
    artifacts.write_json(out / artifacts.EVIDENCE / "timings.json", {"convert_s": seconds})
    return artifacts.seal(
        out,
        stage="convert",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics={**_metrics(variants, left_out, notes, len(compared)), "not_offered": not_offered, "ends": ends},
        libraries=LIBRARIES,
    )


def around(checker: Checker, data: Data) -> Iterator[Row]:
    """The boundaries before and behind the converters, a row each; ConversionError or DataError where one fails."""
    config, folder = checker.config, checker.network.folder
    spec = json.loads((folder / SPEC).read_text())
    steps, name = spec["preprocess"], {"model": checker.network.name}
    overlap.disjoint({"calibration": data.calibration.x, "validation": data.validation.x})
    raw = evaluate.spread(data.validation, config.check_samples)
    who, trained = inputs.by_training(raw, steps, config.reference_preprocess)
    tolerance = numerics.Tolerance(0.0, config.input_min_snr_db)
    yield {**name, **inputs.check(who, trained, inputs.by_runner(raw, steps, spec["raw"]), tolerance)}
    labels = data.validation.y[evaluate.places(data.validation, config.check_samples)]
    places = evaluate.places(data.calibration, config.calibration_samples)
    yield {
        **name,
        **calibrated.check(
            store.load(folder)[0],
            evaluate.network_inputs(data.calibration.x[places], steps),
            *_kinds(data, places),
            calibrated.ordinary(checker.inputs, labels, data.task),
            config.calibration_max_outside,
            config.calibration_min_used,
        ),
    }
    inside = store.read_spec(folder).gives_probabilities
    judged = checker.reference, labels, data.classes, data.task, checker.inputs
    yield {**name, **answer.check(*judged, softmax_inside=inside)}


def _kinds(data: Data, places: np.ndarray) -> tuple[np.ndarray, int]:
    """What kind each calibration sample is of, as the splits were divided, and how many kinds train has."""
    strata = tasks.named(data.task).strata
    return strata(data.calibration.y[places]), len(np.unique(strata(data.train.y)))


def _convert_all(
    jobs: list[Job], checkers: dict[str, Checker], scratch: Path, timeout_s: float, progress: Progress | None
) -> tuple[list[Row], dict[str, float]]:
    """Records of all steps in the order of the jobs, and seconds by variant. The first failure stops the rest."""
    records: dict[Job, list[Row]] = {}
    seconds: dict[str, float] = {}

    def finished(job: Job, outcomes: list[launch.Outcome]) -> None:
        records[job] = list(checkers[job.model].records(job, outcomes))
        for step, outcome in zip(job.steps, outcomes, strict=True):
            if isinstance(outcome, launch.Made):
                seconds[step.out.name] = outcome.seconds
        if progress:
            made = ", ".join(record["precision"] for record in records[job] if "files" in record)
            left_out = [_told(record) for record in records[job] if "reason" in record]
            progress("; ".join([f"{len(records)}/{len(jobs)} {job.model} → {job.target}: {made}", *left_out]))

    launch.convert_all(jobs, scratch, timeout_s, finished)
    return [record for job in jobs for record in records[job]], seconds


def _told(left_out: Row) -> str:
    return f"{left_out['name']} left out: {left_out['reason']}"


def _left_out(model: str, target: str, precision: str, reason: str) -> Row:
    names = {"name": variant_name(model, precision, target), "model": model}
    return {**names, "precision": precision, "target": target, "reason": reason}


def _not_offered(network: Network, config: Config) -> list[Row]:
    """What the config asks for and the target does not have."""
    asked = [(target, precision) for target in config.targets for precision in config.precisions]
    return [
        _left_out(network.name, target, precision, reason)
        for target, precision in asked
        if (reason := network.not_offered(target, precision))
    ]


def _without_reason(left_out: Row) -> Row:
    return {key: value for key, value in left_out.items() if key != "reason"}


def _record(job: Job, step: Step, files: Files, boundaries: list[Row]) -> Row:
    paths = [step.out / name for name in files.names]
    return {
        "name": step.out.name,
        "model": job.model,
        "precision": step.precision,
        "method": step.method,
        "quantization": step.quantization.to_json() if _set_by_target(job, step) else None,
        "target": job.target,
        "files": [f"{step.out.name}/{name}" for name in files.names],
        "bytes": sum(path.stat().st_size for path in paths),
        "input": asdict(files.input),
        "output": asdict(files.output),
        "float_ops": list(files.float_ops),
        "not_offered": list(files.not_offered),
        "debris": [one.to_json() for one in files.debris],
        "boundaries": boundaries,
    }


def _of_the_file(variant: Row) -> Row:
    """The record without what depends on this machine: the debris in what its interpreter compiled."""
    return {**variant, "debris": [one for one in variant["debris"] if not one["compiled"]]}


def _set_by_target(job: Job, step: Step) -> bool:
    """Whether the target itself sets the ranges of int8 by the step's quantization."""
    return step.precision == "int8" and not (step.method == "qat" and job.target in CARRY_RANGES)


def _metrics(variants: list[Row], left_out: list[Row], notes: list[str], check_samples: int) -> Row:
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
