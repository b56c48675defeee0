"""The bundle of a detector's file, made with the functions that a run uses, but without measuring anything."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edgekit.core.tasks import Task
from edgekit.models import store
from edgekit.models.files.onnx_detector import BOXES, SCORES
from edgekit.runner import bundle
from edgekit.runner.boxes import BoxOptions
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.targets import launch
from edgekit.targets.jobs import ConversionJob, ConversionStep
from edgekit.training.teachers.model_file import logits_and_facts, open_file
from tests.runner.conftest import npy

LIMIT_S = 250


@dataclass(frozen=True, eq=False)
class ConvertedDetector:
    """A detector's file, opened and cut as by the profile stage and converted in float for a target.

    Attributes
    ----------
    facts
        What the profile stage knows about the file, the fields of `store.Source`.
    is_cut
        Whether its decoding was cut off.
    keypoints
        The names of the keypoints of a box.
    task
        The task of the bundle.
    """

    target: str
    pictures: np.ndarray
    outputs: np.ndarray
    steps: list[dict[str, Any]]
    labels: list[str]
    facts: dict[str, Any]
    is_cut: bool
    converted: launch.ConvertedStep
    folder: Path
    keypoints: Sequence[str] = ()
    task: Task = "detection"

    def bundled(self, least: float, most: int, overlap: float | None = None) -> Path:
        """Return the bundle; `overlap` is by default what a run gives it, 1 for boxes that are already selected."""
        files = self.converted.files
        content = {name: (self.folder / name).read_bytes() for name in files.names}
        overlap = (1.0 if self.facts["suppressed"] else 0.5) if overlap is None else overlap
        manifest = Manifest(
            name="cells", version="1.0.0", target=self.target, variant=f"baseline-fp32-{self.target}",
            task=self.task, inputs=files.inputs, outputs=files.outputs,
            raw=RawSpec("image", self.pictures.shape[1:], "uint8"),
            keypoints={"names": list(self.keypoints), "skeleton": []} if self.keypoints else None,
            preprocess=self.steps, labels=self.labels, model_files=sorted(content),
            activation="sigmoid", boxes=BoxOptions(least, overlap, most)._asdict(), head=files.head,
            golden={"inputs": "i.npy", "outputs": "o.npy", "atol": 1e-3, "top1": False},
        )  # fmt: skip
        golden = {"i.npy": npy(self.pictures), "o.npy": npy(self.outputs.astype(np.float32))}
        path = self.folder / f"cells-{overlap:g}.edge.zip"
        bundle.write(path, manifest, {**content, **golden})
        return path


def convert(
    path: Path,
    target: str,
    home: Path,
    pictures: np.ndarray,
    steps: list[dict[str, Any]],
    labels: list[str],
    keypoints: Sequence[str] = (),
    task: Task = "detection",
) -> ConvertedDetector:
    """Convert the detector at `path` for a target, with pictures (n, height, width, 3) of bytes."""
    cut = home / "cut" / path.name
    cut.parent.mkdir(parents=True)
    outputs, facts = logits_and_facts(
        open_file(path, steps), pictures, classes=len(labels), timeout_s=LIMIT_S, threads=1, task=task,
        keypoints=len(keypoints), cut_file=cut,
    )  # fmt: skip
    raw = {"kind": "image", "shape": list(pictures.shape[1:]), "dtype": "uint8"}
    height, width, channels = pictures.shape[1:]
    spec = store.ModelSpec(
        builder=None, source=store.Source(**facts), kwargs={}, input_shape=(channels, height, width),
        num_classes=len(labels), classes=tuple(labels), raw=raw, task=task, preprocess=steps,
    )  # fmt: skip
    store.save_source(home / "model", cut if cut.exists() else path, spec)
    np.save(home / "calibration.npy", pictures.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    step = ConversionStep("fp32", "float", home / "model", home / "fp32")
    job = ConversionJob("baseline", target, home / "calibration.npy", (step,))
    [converted] = launch.convert(job, home, LIMIT_S, threading.Event())
    assert isinstance(converted, launch.ConvertedStep), converted
    is_cut = cut.exists() and [each.name for each in onnx.load(cut).graph.output][:2] == [BOXES, SCORES]
    return ConvertedDetector(
        target, pictures, outputs, steps, labels, facts, is_cut, converted, home / "fp32", keypoints,
        task,
    )  # fmt: skip
