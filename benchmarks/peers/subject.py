"""The input of every toolkit: the float baseline of a finished run, and the samples of its config."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import NotRun
from benchmarks.peers.worker_protocol import MODEL, SAMPLES, TFLITE
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
MAX_DIFFERENCE_PP = 0.5
"""Allowed difference between the accuracies of a float file and the network.

If it is larger, the config is probably not the one that the run was made with.
"""


@dataclass(frozen=True)
class Subject:
    """The folder that toolkits read, and the plan and data with which their files are evaluated.

    `sha256` is the digest of the float ONNX file.
    """

    folder: Path
    plan: Plan
    data: Data
    sha256: str

    @property
    def preprocess(self) -> list[dict[str, Any]]:
        """The steps from a raw sample to the input of every file that a toolkit makes."""
        return list(self.plan.run.preprocess)

    def evaluate(self, path: Path) -> dict[str, Any]:
        """Return a file's accuracy on validation, as a fraction, and its digest.

        A finished benchmark recognizes the file by its digest.

        Raises
        ------
        ModelError
            edgekit's interpreters cannot run the file.
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

    def rivals_option(self, paths: list[Path]) -> list[dict[str, Any]]:
        """Return the value of `benchmark.rivals`: the files of the config and those at `paths`."""
        configured = self.plan.values.get("benchmark", {}).get("rivals", [])
        return [*configured, *({"path": str(path), "preprocess": self.preprocess} for path in paths)]


def write_subject(config: Path, run: Path, folder: Path) -> Subject:
    """Write the float baseline with an open batch and `samples.npz` to `folder`, which is emptied first.

    `model.tflite` is included if the run has that target, with the names and signature that the shipped file lacks.
    `samples.npz` holds preprocessed samples, images with channels first: `calibration` (n, …), the samples that the
    convert stage calibrates with, and `x` (n, …) and `y` (n,) of validation.

    Raises
    ------
    NotRun
        The run has no such file, or its accuracy differs from that of the run's network.
    """
    baseline = run / "convert" / "baseline-fp32-onnx" / "model.onnx"
    if not baseline.is_file():
        raise NotRun(f"{baseline} is not there; run edgekit run {config} with the target onnx, and name it by --run")
    plan = load_plan(config)
    make_importable(plan)
    data = all_data.load(plan.data).withhold_test()
    if data.task != "classification":
        raise NotRun(f"{config}: its task is {data.task}; only classification can be compared with other toolkits")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copyfile(baseline, folder / MODEL)
    tflite = run / "convert" / "baseline-fp32-tflite" / "model.tflite"
    if tflite.is_file():
        (folder / TFLITE).write_bytes(flatbuffer.with_names_and_signature(tflite.read_bytes()))

    steps, sample_count = plan.run.preprocess, plan.section("convert")["calibration_samples"]
    np.savez(
        folder / SAMPLES,
        calibration=network_inputs(spread_samples(data.calibration, sample_count), steps),
        x=network_inputs(data.validation.x, steps),
        y=np.asarray(data.validation.y, np.int64),
    )
    subject = Subject(folder, plan, data, sha256_file(folder / MODEL))
    _check_accuracy(subject, run)
    return subject


def _check_accuracy(subject: Subject, run: Path) -> None:
    """Check that the float files are as accurate as the run's network.

    Raises
    ------
    NotRun
        The accuracy of a file differs too much from that of the network.
    """
    network_accuracy = artifacts.load(run / "profile").metrics["validation_accuracy"]
    for path in sorted(subject.folder.glob("model.*")):
        file_accuracy = subject.evaluate(path)["accuracy_validation"]
        if abs(file_accuracy - network_accuracy) > MAX_DIFFERENCE_PP / 100:
            raise NotRun(
                f"{run}: the float {path.name} is right on {file_accuracy:.2%} of validation and the network on "
                f"{network_accuracy:.2%}; give the config that the run was made with"
            )
