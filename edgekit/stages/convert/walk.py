"""The stage from its source to its seal: convert in children, check every boundary here, list the variants."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit import artifact as artifacts
from edgekit.errors import ConversionError
from edgekit.stages.convert import LIBRARIES, Config, numerics
from edgekit.stages.convert.plan import SPEC, Network, networks
from edgekit.targets import evaluate, launch
from edgekit.targets.files import Files, Job, Step

if TYPE_CHECKING:
    from edgekit.artifact import Artifact
    from edgekit.data import Data

Progress = Callable[[str], None]

ADVICE = {
    "fp32": "the converter changed what the network computes: replace the layer it got wrong, or drop this target",
    "fp16": "values leave the range of float16: leave fp16 out of convert.precisions, or normalise the input",
    "int8": "raise convert.calibration_samples, let quantize tune the network (QAT), or loosen convert.int8_min_…",
}


@dataclass(frozen=True)
class Checker:
    """One network's outputs on the check samples, and what each boundary must keep."""

    network: Network
    inputs: np.ndarray
    config: Config

    @cached_property
    def reference(self) -> np.ndarray:
        """By PyTorch in float32, (n, classes)."""
        return evaluate.torch_outputs(self.network.folder, self.inputs)

    @cached_property
    def tuned_reference(self) -> np.ndarray:
        """The same of the weights that QAT left."""
        return evaluate.torch_outputs(self.network.tuned or self.network.folder, self.inputs)

    def variants(self, job: Job, made: list[launch.Made]) -> Iterator[dict[str, Any]]:
        """The records of one job's files, each boundary held against its tolerance."""
        float_model: tuple[str, np.ndarray] | None = None
        before: list[dict[str, Any]] = []
        for step, result in zip(job.steps, made, strict=True):
            name = f"{job.target}-{step.precision}"
            what = f"{job.model}, {job.target}, {step.precision}"
            outputs = evaluate.file_outputs(what, job.target, step.out, result.files, self.inputs)
            if step.method == "qat":
                boundaries = [self._boundary("torch-fp32 (tuned)", self.tuned_reference, name, outputs, step)]
            elif float_model:
                boundaries = [*before, self._boundary(*float_model, name, outputs, step)]
            else:
                boundaries = [self._boundary("torch-fp32", self.reference, name, outputs, step)]
            if step.precision == "fp32":
                float_model, before = (name, outputs), boundaries
            yield _record(job, step, result.files, boundaries)

    def _boundary(
        self, source: str, reference: np.ndarray, result: str, outputs: np.ndarray, step: Step
    ) -> dict[str, Any]:
        agreement = numerics.compare(reference, outputs)
        faults = numerics.faults(agreement, self.config.tolerance(step.precision))
        if faults:
            raise ConversionError(
                f"{self.network.name}: {source} → {result} is outside its tolerance on {len(outputs)} validation "
                f"samples: {'; '.join(faults)} (max |Δ| {agreement.max_abs:.3g}); {ADVICE[step.precision]}"
            )
        return {"from": source, "to": result, **asdict(agreement), "ok": True}


def walk(source: Artifact, data: Data, config: Config, out: Path, progress: Progress | None = None) -> Artifact:
    """Run the stage; see `edgekit.stages.convert.run`."""
    artifacts.begin(out)
    chosen, notes = networks(source, config.models)
    steps = json.loads((chosen[0].folder / SPEC).read_text())["preprocess"]
    inputs = evaluate.network_inputs(evaluate.spread(data.validation, config.check_samples), steps)
    checkers = {network.name: Checker(network, inputs, config) for network in chosen}
    with tempfile.TemporaryDirectory(prefix="edgekit-convert-") as folder:
        scratch = Path(folder)
        calibration = scratch / "calibration.npy"
        samples = evaluate.spread(data.calibration, config.calibration_samples)
        np.save(calibration, evaluate.network_inputs(samples, steps), allow_pickle=False)
        jobs = [job for network in chosen for job in network.jobs(config, calibration, out)]
        variants, seconds = _convert_all(jobs, checkers, scratch, config.timeout_s, progress)
    artifacts.write_json(out / "variants.json", variants)
    artifacts.write_json(out / artifacts.EVIDENCE / "timings.json", {"convert_s": seconds})
    return artifacts.seal(
        out,
        stage="convert",
        source=source,
        data_digest=data.digest,
        config=config.model_dump(),
        metrics=_metrics(variants, notes, len(inputs)),
        libraries=LIBRARIES,
    )


def _convert_all(
    jobs: list[Job], checkers: dict[str, Checker], scratch: Path, timeout_s: float, progress: Progress | None
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Records of all variants in the order of the jobs, and seconds by variant. The first failure stops the rest."""
    records: dict[Job, list[dict[str, Any]]] = {}
    seconds: dict[str, float] = {}

    def finished(job: Job, made: list[launch.Made]) -> None:
        records[job] = list(checkers[job.model].variants(job, made))
        seconds.update({step.out.name: result.seconds for step, result in zip(job.steps, made, strict=True)})
        if progress:
            progress(
                f"{len(records)}/{len(jobs)} {job.model} → {job.target}: {', '.join(one.precision for one in made)}"
            )

    launch.convert_all(jobs, scratch, timeout_s, finished)
    return [record for job in jobs for record in records[job]], seconds


def _record(job: Job, step: Step, files: Files, boundaries: list[dict[str, Any]]) -> dict[str, Any]:
    paths = [step.out / name for name in files.names]
    return {
        "name": step.out.name,
        "model": job.model,
        "precision": step.precision,
        "method": step.method,
        "target": job.target,
        "files": [f"{step.out.name}/{name}" for name in files.names],
        "bytes": sum(path.stat().st_size for path in paths),
        "input": asdict(files.input),
        "output": asdict(files.output),
        "float_ops": list(files.float_ops),
        "boundaries": boundaries,
    }


def _metrics(variants: list[dict[str, Any]], notes: list[str], check_samples: int) -> dict[str, Any]:
    last = {variant["name"]: variant["boundaries"][-1] for variant in variants}
    return {
        "variants": len(variants),
        "check_samples": check_samples,
        "lowest_top1_agreement": min(boundary["top1_agreement"] for boundary in last.values()),
        "lowest_snr_db": min(boundary["snr_db"] for boundary in last.values()),
        "bytes": {variant["name"]: variant["bytes"] for variant in variants},
        "notes": notes,
    }
