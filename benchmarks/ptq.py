"""Measure what quantization after training costs EfficientNet-Lite0 with its trained weights on each target.

    python -m benchmarks.ptq [--train 200] [--test 200]

The backbone is not trained. A new last layer is fitted to its features of `--train` pictures a class of CIFAR-10,
scaled to 224 pixels, and the converted files answer `--test` pictures a class. CIFAR-10 comes from the folder that
EDGEKIT_SHARED names.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import NotRun, machine_conditions, markdown, parser
from benchmarks.transfer import few_pictures
from edgekit.cli.init import pretrained_network
from edgekit.core.pretrained import Pretrained
from edgekit.data import Data, Split
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.models.pretrained import load_backbone
from edgekit.targets import bias_correction, evaluate
from edgekit.targets.jobs import ConversionJob, ConversionStep

SIDE = 224
CALIBRATION_SAMPLES = 100
TARGETS = {"tflite": ("int8", "w8"), "onnx": ("int8",), "openvino": ("int8", "w8")}
CHUNK = 100
"""Pictures that are in memory as float samples at once."""
STEPS = [step for step, _ in pretrained_network.STEPS]


def main() -> None:
    """Fit the last layer, convert the network, and print the table."""
    arguments = parser(__doc__)
    arguments.add_argument("--train", type=int, default=200, help="pictures of each class to which the layer is fitted")
    arguments.add_argument("--test", type=int, default=200, help="pictures of each class that are answered")
    options = arguments.parse_args()
    if not (shared := os.environ.get("EDGEKIT_SHARED")):
        raise SystemExit(f"benchmarks.ptq: {NotRun('EDGEKIT_SHARED is not set')}")
    print(machine_conditions())
    with tempfile.TemporaryDirectory() as folder:
        pictures = Path(folder) / "pictures"
        data = few_pictures(Path(shared) / "data/cifar10.zip", pictures, options.train, SIDE, 0, options.test)
        save_network(Path(folder) / "network", data)
        print(table(Path(folder), data))


def save_network(folder: Path, data: Data) -> None:
    """Save EfficientNet-Lite0 with a last layer for the classes of the pictures."""
    import torch
    from sklearn.linear_model import LogisticRegression

    proposed = pretrained_network.NETWORK
    pretrained = Pretrained.model_validate(proposed["pretrained"])
    spec = spec_for(data, proposed["builder"], proposed["kwargs"], STEPS, pretrained=pretrained)
    module = store.build(spec).eval()
    print(load_backbone(module, pretrained))
    *_, last = (each for each in module.modules() if isinstance(each, torch.nn.Linear))
    features: list[np.ndarray] = []
    hook = last.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0].numpy()))
    with torch.inference_mode():
        for inputs in inputs_of(data.train):
            module(torch.from_numpy(inputs))
    hook.remove()
    fitted = LogisticRegression(C=0.02, max_iter=500).fit(np.concatenate(features), data.train.y)
    with torch.no_grad():
        last.weight.copy_(torch.from_numpy(fitted.coef_))
        last.bias.copy_(torch.from_numpy(fitted.intercept_))
    store.save(folder, module, spec)


def inputs_of(split: Split) -> Iterator[np.ndarray]:
    """Yield the network's inputs for all pictures, in chunks."""
    for start in range(0, len(split), CHUNK):
        yield evaluate.network_inputs(split.x[start : start + CHUNK], STEPS)


def table(folder: Path, data: Data) -> str:
    """Convert the network in `folder`, with corrected biases and without, and return how well the files answer."""
    calibration = evaluate.network_inputs(evaluate.spread_samples(data.train, CALIBRATION_SAMPLES), STEPS)
    jobs = [
        ConversionJob(
            "lite0", target, folder / "unused.npy",
            tuple(ConversionStep(precision, "ptq", folder / "network", folder / f"{target}-{precision}")
                  for precision in precisions),
        )
        for target, precisions in TARGETS.items()
    ]  # fmt: skip
    corrected = bias_correction.correct_jobs(jobs, calibration, folder)
    print(corrected.note)
    by_float = answers(ConversionStep("fp32", "float", folder / "network", folder / "fp32"), "onnx", calibration, data)
    rows = [["float", "", f"{100 * np.mean(by_float == data.test.y):.2f} %", "", ""]]
    for job in corrected.jobs:
        for step in job.steps:
            for name, each in (("yes", step), ("no", replace(step, corrected=None))):
                classes = answers(each, job.target, calibration, data)
                rows.append([f"{job.target} {step.precision}", name, *figures(classes, by_float, data.test.y)])
    return markdown(["file", "corrected biases", "accuracy", "loss, points", "agreement"], rows, (0, 1))


def answers(step: ConversionStep, target: str, calibration: np.ndarray, data: Data) -> np.ndarray:
    """Convert a step, and return the class that its file gives each test picture."""
    convert: Any = importlib.import_module(f"edgekit.targets.{target}.convert").convert
    source = step.corrected or step.model_folder
    files = convert(source, step.precision, calibration, step.out, quantization=step.quantization)
    outputs = [evaluate.file_outputs("lite0", target, step.out, files, inputs) for inputs in inputs_of(data.test)]
    classes: np.ndarray = np.concatenate(outputs).argmax(1)
    return classes


def figures(classes: np.ndarray, by_float: np.ndarray, labels: np.ndarray) -> list[str]:
    """Return the accuracy, the loss with its 95 % interval, and the agreement with the float network."""
    lost = (by_float == labels).astype(float) - (classes == labels)
    margin = 1.96 * lost.std() / len(lost) ** 0.5
    loss = f"{100 * lost.mean():+.2f} ± {100 * margin:.2f}"
    return [f"{100 * np.mean(classes == labels):.2f} %", loss, f"{100 * np.mean(classes == by_float):.1f} %"]


if __name__ == "__main__":
    main()
