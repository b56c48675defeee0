"""The reference networks as bundles, untrained: what a call costs does not depend on what was learnt.

They are kept in build/bench. Golden vectors are what the target's usual
interpreter gives, with room for other interpreters' rounding.
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


def lived_in(module: Any) -> Any:
    """Norms and biases as after a training. Zeros would be left out, or stored once for all layers."""
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, _BatchNorm):
                part.running_mean.normal_(0, 0.1, generator=generator)
                part.running_var.uniform_(0.5, 1.5, generator=generator)
                part.weight.uniform_(0.8, 1.2, generator=generator)
            if getattr(part, "bias", None) is not None:
                part.bias.normal_(0, 0.1, generator=generator)
    return module


def make(network: str, precision: str, target: str) -> Path:
    """The path of a reference network's bundle, made if it is not there."""
    builder, kwargs = NETWORKS[network]
    samples = np.random.default_rng(0).integers(0, 256, (64, *SHAPE)).astype(np.uint8)
    return bundled(network, builder, kwargs, precision, target, RawSpec("image", SHAPE, "uint8"), STEPS, samples, 10)


def bundled(
    name: str,
    builder: str,
    kwargs: dict[str, Any],
    precision: str,
    target: str,
    raw: RawSpec,
    steps: list[dict[str, Any]],
    samples: np.ndarray,
    classes: int,
) -> Path:
    """The path of an untrained network's bundle, made if it is not there.

    `samples` (n, *raw.shape) calibrate it, and the first eight are its golden inputs.
    """
    variant = f"{name}-{precision}-{target}"
    path, work = HOME / f"{variant}.edge.zip", HOME / variant
    if path.is_file():
        return path
    from edgekit.models import store

    labels = [str(number) for number in range(classes)]
    calibration = transform.to_layout(transform.apply(steps, samples), "NCHW")
    spec = store.ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=calibration.shape[1:],
        num_classes=classes,
        classes=tuple(labels),
        raw={"kind": raw.kind, "shape": list(raw.shape), "dtype": raw.dtype},
    )
    shutil.rmtree(work, ignore_errors=True)
    model = HOME / "models" / name  # all precisions share it, and so the float model that they are made from
    store.save(model, lived_in(store.build(spec)), spec)
    made = importlib.import_module(f"edgekit.targets.{target}.convert").convert(
        model, precision, calibration, work / "out"
    )
    files = {member: (work / "out" / member).read_bytes() for member in made.names}
    manifest = Manifest(
        name=name,
        version="0",
        target=target,
        variant=variant,
        raw=raw,
        inputs=made.inputs,
        outputs=made.outputs,
        preprocess=steps,
        labels=labels,
        model_files=sorted(files),
        golden={"inputs": golden.INPUTS, "outputs": golden.OUTPUTS, "atol": 0.0, "top1": False},
    )
    backend = open_backend(target, files, made.inputs, made.outputs)
    encode = encoder(manifest, backend)
    outputs = np.concatenate([decoded(backend, encode(sample)) for sample in samples[:8]])
    manifest.golden["atol"] = golden.tolerance(outputs, 0.1)
    bundle.write(path, manifest, {**files, **golden.golden_files(samples[:8], outputs)})
    shutil.rmtree(work)
    return path


def decoded(backend: Any, x: np.ndarray) -> np.ndarray:
    """Float32 outputs (1, classes)."""
    y = backend.invoke(x)
    return np.asarray(y if backend.decode is None else backend.decode(y))
