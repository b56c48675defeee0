"""What is run everywhere, and the answers that it must give: read from the files themselves, as anybody can."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Known:
    """A bundle with its golden samples: a file for each sample, and the labels and scores recorded for them."""

    path: Path
    samples: list[Path]
    labels: list[str]
    scores: np.ndarray
    atol: float

    @property
    def clearest(self) -> int:
        """The vector whose label leads by most, so that rounding cannot change it."""
        ranked = np.sort(self.scores, axis=1)
        return int((ranked[:, -1] - ranked[:, -2]).argmax())


def known(bundle: Path, folder: Path) -> Known:
    """Read a bundle, and write its golden samples into a folder."""
    with zipfile.ZipFile(bundle) as archive:
        facts = json.loads(archive.read("manifest.json"))
        golden = facts["golden"]
        inputs, scores = (np.load(io.BytesIO(archive.read(golden[name]))) for name in ("inputs", "outputs"))
    samples = [folder / f"{bundle.name}-{number}.npy" for number in range(len(inputs))]
    for path, sample in zip(samples, inputs):
        np.save(path, sample)
    labels = [facts["labels"][index] for index in scores.argmax(axis=1)]
    return Known(bundle, samples, labels, scores, golden["atol"])


def cases(interpreter: str, digits: dict[str, Known], integer: Known) -> dict[str, Known]:
    """What an interpreter runs, by a word for the table; the first is what it is for."""
    if interpreter == "openvino":
        return {"digits": digits["openvino"], "digits as ONNX": digits["onnx"]}
    if interpreter == "onnxruntime":
        return {"digits": digits["onnx"]}
    return {"digits": digits["tflite"], "int8": integer}
