"""The plan of a run, and the models that are served."""

from __future__ import annotations

import os
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import ROOT, NotRun
from benchmarks.serving.machine import HOME, environment, python
from edgekit.runner import bundle as bundles
from edgekit.runner.model import open_model

CLASSES = "airplane,automobile,bird,cat,deer,dog,frog,horse,ship,truck"
PICTURES = 16


@dataclass(frozen=True)
class Plan:
    """`bundles` is the folder of the digits' bundles; `scale` multiplies every time that load lasts."""

    bundles: Path
    rounds: int
    scale: float = 1.0

    def digits(self, target: str) -> Path:
        """The bundle of a target."""
        found = sorted(self.bundles.glob(f"digits-{target}-*.edge.zip"))
        if not found:
            raise NotRun(f"{self.bundles} holds no digits-{target}-*.edge.zip; run: make run, or name another folder")
        return found[-1]


def sample_of(path: Path) -> np.ndarray:
    """A raw sample, the bundle's first golden input."""
    found = bundles.read(path)
    model = open_model(found, 1, None)
    return np.ascontiguousarray(model.golden()[0][0])


def resnet8() -> Path:
    """MLPerf Tiny's int8 ResNet-8 as a bundle, made by `edgekit bundle` if it is not there."""
    folder = HOME / "resnet8"
    found = sorted(folder.glob("*.edge.zip"))
    if found:
        return found[0]
    shared = Path(os.environ.get("EDGEKIT_SHARED", ROOT.parent / "shared"))
    model, archive = shared / "models" / "pretrainedResnet_quant.tflite", shared / "data" / "cifar10.zip"
    for path in (model, archive):
        if not path.is_file():
            raise NotRun(f"{path}: no such file; EDGEKIT_SHARED names the folder with models/ and data/")
    pictures = HOME / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive) as packed:
        names = sorted(name for name in packed.namelist() if "test/" in name and name.endswith(".jpg"))
        for number, name in enumerate(names[:: max(1, len(names) // PICTURES)][:PICTURES]):
            (pictures / f"{number:02}.jpg").write_bytes(packed.read(name))
    words = python("-m", "edgekit", "bundle", str(model), "--golden", str(pictures), "--labels", CLASSES, "--name",
                   "resnet8", "--out", str(folder))  # fmt: skip
    done = subprocess.run(words, env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise NotRun(f"edgekit bundle ended with exit code {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
    return sorted(folder.glob("*.edge.zip"))[0]
