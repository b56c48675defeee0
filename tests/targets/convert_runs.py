"""What a convert stage starts from: synthetic data, specs, the sealed artifacts of the stages before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.data import Data, Split
from edgekit.models import store
from edgekit.models.store import ModelSpec
from edgekit.targets.jobs import MINMAX, Quantization

CLASSES = ("red", "green", "blue", "grey")
STEPS = [{"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": [0.5, 0.4, 0.3], "std": [0.25, 0.2, 0.3]}]
SHAPE = (3, 8, 8)


def colours(samples: int, seed: int) -> Split:
    """Colour casts under noise: channel order matters."""
    random = np.random.default_rng(seed)
    y = np.arange(samples) % len(CLASSES)
    casts = np.array([[90, 0, 0], [0, 90, 0], [0, 0, 90], [30, 30, 30]])
    x = random.integers(0, 160, (samples, 8, 8, 3)) + casts[y][:, None, None, :]
    return Split(x.astype(np.uint8), y.astype(np.int64))


def spec_of(builder: str, shape: tuple[int, ...] = SHAPE, **kwargs: Any) -> ModelSpec:
    image = len(shape) == 3
    return ModelSpec(
        builder=f"convert_nets:{builder}",
        kwargs=kwargs,
        input_shape=shape,
        num_classes=len(CLASSES),
        classes=CLASSES,
        preprocess=STEPS if image else [],
        raw={
            "kind": "image" if image else "vector",
            "shape": [shape[1], shape[2], shape[0]] if image else list(shape),
            "dtype": "uint8" if image else "float32",
        },
    )


def seal_run(
    run: Path,
    data: Data,
    models: dict[str, tuple[nn.Module, ModelSpec]],
    qat: nn.Module | None = None,
    quantization: Quantization = MINMAX,
    post_training: Quantization | None = None,
) -> Artifact:
    """Artifacts from origin to quantize; `models` by name, a missing one is not made. Returns quantize's.

    `qat` is a network quantized by nncf, as the quantize stage leaves it; `quantization` how int8 comes about in
    `pruned`, `post_training` in the others: the same without layers in float, if it is not given.
    """
    places = {
        "profile": {"model": "baseline"},
        "distill": {"model": "student"},
        "prune": {"model": "pruned", "sparse": "sparse"},
        "quantize": {"model": "pruned"},
    }
    source = _seal(artifacts.begin(run / "origin"), "origin", None, data)
    for stage, folders in places.items():
        out = artifacts.begin(run / stage)
        for folder, name in folders.items():
            if name in models:
                store.save(out / folder, *models[name])
        if stage == "quantize":
            others = post_training or replace(quantization, keep_float=())
            decision = {"quantization": quantization.to_json(), "ptq_quantization": others.to_json()}
            (out / "decision.json").write_text(json.dumps({"method": "qat" if qat else "ptq", **decision}))
            if qat:
                _save_tuned(out, models["pruned"], qat)
        source = _seal(out, stage, source, data)
    return source


def _save_tuned(out: Path, pruned: tuple[nn.Module, ModelSpec], qat: nn.Module) -> None:
    from edgekit.models import quantized

    spec = pruned[1]
    tuned = store.build(spec)
    tuned.load_state_dict(quantized.float_state(qat))
    store.save(out / "model", tuned, spec)
    quantized.save(out / "nncf", qat)


def _seal(out: Path, stage: str, source: Artifact | None, data: Data) -> Artifact:
    return artifacts.seal(
        out, stage=stage, source=source, data_digest=data.digest, config={}, metrics={}, libraries=("torch",)
    )
