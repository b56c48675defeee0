"""What every peer gets: the baseline of a finished run in float, and the samples of its config."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import NotRun
from benchmarks.peers.given import MODEL, SAMPLES, TFLITE
from edgekit import data as all_data
from edgekit.core import artifacts, tasks
from edgekit.core.hashing import sha256_file
from edgekit.models.files import flatbuffer
from edgekit.targets.evaluate import network_inputs, spread_samples
from edgekit.training.predict import score_samples
from edgekit.training.teachers import model_file
from edgekit.workbook.plan import load_plan, make_importable

if TYPE_CHECKING:
    from edgekit.data import Data
    from edgekit.workbook.plan import Plan

ANSWERS_LIMIT_S = 3600.0
NEAR_PP = 0.5
"""How far a float file's accuracy may be from the network's; more means another config, or another preprocess."""


@dataclass(frozen=True)
class Subject:
    """The folder that peers read, and what their files are judged by. `sha256` is of the float ONNX file."""

    folder: Path
    plan: Plan
    data: Data
    sha256: str

    @property
    def preprocess(self) -> list[dict[str, Any]]:
        """Steps from a raw sample to the input of every file that a peer makes."""
        return list(self.plan.run.preprocess)

    def judged(self, path: Path) -> dict[str, Any]:
        """A file's accuracy on validation, a fraction, by the workbook's interpreters; ModelError if it does not run.

        With its digest, by which a finished benchmark tells that this is the file that it measured.
        """
        model, split = model_file.open_file(path, self.preprocess), self.data.validation
        scores = model_file.logits(
            model,
            split.x,
            classes=len(self.data.classes),
            timeout_s=ANSWERS_LIMIT_S,
            threads=1,
            task=self.data.task,
            tensors=self.data.tensors or (),
        )
        accuracy = tasks.accuracy(score_samples(scores, split, model.preprocess, self.data.task))
        return {"accuracy_validation": accuracy, "sha256": model.sha256}

    def rivals(self, paths: list[Path]) -> list[dict[str, Any]]:
        """`benchmark.rivals`: those of the config, and the files at `paths`."""
        own = self.plan.values.get("benchmark", {}).get("rivals", [])
        return [*own, *({"path": str(path), "preprocess": self.preprocess} for path in paths)]


def write(config: Path, run: Path, folder: Path) -> Subject:
    """Write the float baseline at an open batch and `samples.npz` to `folder`, which is emptied first.

    `model.tflite` is there where the run has that target, with the names and the signature that it shipped without.
    `samples.npz` holds what the files take, images channels first: `calibration` (n, …), the samples that convert
    calibrates with, `x` (n, …) and `y` (n,) of validation. NotRun where the run has no such file, or the file does not
    answer as the run's network did.
    """
    baseline = run / "convert" / "baseline-fp32-onnx" / "model.onnx"
    if not baseline.is_file():
        raise NotRun(f"{baseline} is not there; run edgekit run {config} with the target onnx, and name it by --run")
    plan = load_plan(config)
    make_importable(plan)
    data = all_data.load(plan.data).withhold_test()
    if data.task != "classification":
        raise NotRun(f"{config}: its task is {data.task}; peers are given classifications alone")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(baseline, folder / MODEL)
    tflite = run / "convert" / "baseline-fp32-tflite" / "model.tflite"
    if tflite.is_file():
        (folder / TFLITE).write_bytes(flatbuffer.with_names_and_signature(tflite.read_bytes()))

    steps, count = plan.run.preprocess, plan.section("convert")["calibration_samples"]
    np.savez(
        folder / SAMPLES,
        calibration=network_inputs(spread_samples(data.calibration, count), steps),
        x=network_inputs(data.validation.x, steps),
        y=np.asarray(data.validation.y, np.int64),
    )
    subject = Subject(folder, plan, data, sha256_file(folder / MODEL))
    _check(subject, run)
    return subject


def _check(subject: Subject, run: Path) -> None:
    """NotRun where a float file and the run's network are not right equally often."""
    before = artifacts.load(run / "profile").metrics["validation_accuracy"]
    for path in sorted(subject.folder.glob("model.*")):
        found = subject.judged(path)["accuracy_validation"]
        if abs(found - before) > NEAR_PP / 100:
            raise NotRun(
                f"{run}: the float {path.name} is right on {found:.2%} of validation and the network on {before:.2%}; "
                "give the config that the run was made with"
            )
