"""Bundles of the reference networks. They are untrained, because training does not affect the cost of a call.

They are kept in build/bench. The golden answers are computed by the target's usual interpreter, with a tolerance for
the rounding of other interpreters.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import BUILD
from edgekit.core import golden
from edgekit.runner import bundle
from edgekit.runner.backends import open_backend
from edgekit.runner.bundle.manifest import Manifest, RawSpec
from edgekit.runner.input_encoding import encoder
from edgekit.runner.preprocess import transform

HOME = BUILD / "bench"
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "ds_cnn": ("edgekit.models.ds_cnn:ds_cnn", {}),
    "resnet8": ("edgekit.models.resnet:resnet8", {}),
    "tiny": ("edgekit.models.ds_cnn:ds_cnn", {"width": 8, "blocks": 2, "block_strides": [2, 2]}),
}
SHAPE = (32, 32, 3)
STEPS = [{"step": "scale", "factor": 1 / 255}]


def randomize_norms_and_biases(module: Any) -> Any:
    """Set norms and biases to values as after a training, because converters would drop zeros or store them once."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, _BatchNorm):
                layer.running_mean.normal_(0, 0.1, generator=generator)
                layer.running_var.uniform_(0.5, 1.5, generator=generator)
                layer.weight.uniform_(0.8, 1.2, generator=generator)
            if getattr(layer, "bias", None) is not None:
                layer.bias.normal_(0, 0.1, generator=generator)
    return module


def network_bundle(network: str, precision: str, target: str) -> Path:
    """Return the path of a reference network's bundle, which is created if it does not exist."""
    builder, kwargs = NETWORKS[network]
    samples = np.random.default_rng(0).integers(0, 256, (64, *SHAPE)).astype(np.uint8)
    return untrained_bundle(
        network, builder, kwargs, precision, target, RawSpec("image", SHAPE, "uint8"), STEPS, samples, 10
    )


def untrained_bundle(
    name: str,
    builder: str,
    kwargs: dict[str, Any],
    precision: str,
    target: str,
    raw: RawSpec,
    steps: list[dict[str, Any]],
    samples: np.ndarray,
    classes: int,
    task: str = "classification",
) -> Path:
    """Return the path of an untrained network's bundle, which is created if it does not exist.

    `samples` (n, *raw.shape) calibrate it, and the first eight are its golden inputs. Branches that only training needs
    are merged. A network of another task than classification gets a bundle that gives its outputs as they are.
    """
    variant = f"{name}-{precision}-{target}"
    path, working_folder = HOME / f"{variant}.edge.zip", HOME / variant
    if path.is_file():
        return path
    from edgekit.models import store
    from edgekit.models.reparameterize import is_mergeable, merge_branches

    labels = [str(number) for number in range(classes)]
    calibration = transform.to_layout(transform.apply(steps, samples), "NCHW")
    spec = store.ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=calibration.shape[1:],
        num_classes=classes,
        classes=tuple(labels),
        raw={"kind": raw.kind, "shape": list(raw.shape), "dtype": raw.dtype},
        task=task,
    )
    shutil.rmtree(working_folder, ignore_errors=True)
    model = HOME / "models" / name  # all precisions share it, and so the same float model
    module = randomize_norms_and_biases(store.build(spec))
    merged = spec.model_copy(update={"reparameterized": is_mergeable(module)})
    store.save(model, merge_branches(module), merged)
    converted = importlib.import_module(f"edgekit.targets.{target}.convert").convert(
        model, precision, calibration, working_folder / "out"
    )
    files = {member: (working_folder / "out" / member).read_bytes() for member in converted.names}
    manifest = Manifest(
        name=name,
        version="0",
        target=target,
        variant=variant,
        raw=raw,
        inputs=converted.inputs,
        outputs=converted.outputs,
        preprocess=steps,
        labels=labels if task == "classification" else [],
        task=task if task == "classification" else "raw",
        activation="softmax" if task == "classification" else "none",
        model_files=sorted(files),
        golden={"inputs": golden.INPUTS, "outputs": golden.OUTPUTS, "atol": 0.0, "top1": False},
    )
    backend = open_backend(target, files, converted.inputs, converted.outputs)
    encode = encoder(manifest, backend)
    outputs = np.concatenate([float_outputs(backend, encode(sample)) for sample in samples[:8]])
    manifest.golden["atol"] = golden.tolerance(outputs, 0.1)
    bundle.write(path, manifest, {**files, **golden.golden_files(samples[:8], outputs)})
    shutil.rmtree(working_folder)
    return path


def float_outputs(backend: Any, x: np.ndarray) -> np.ndarray:
    """Return the outputs (1, classes) in float32."""
    y = backend.invoke(x)
    return np.asarray(y if backend.decode is None else backend.decode(y))
