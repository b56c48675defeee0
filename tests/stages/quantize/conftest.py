"""A short real pipeline on the digits: a baseline and a smaller network to quantize."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.config import TrainOptions, validate
from edgekit.data import Data, load, parse
from edgekit.stages.quantize import QuantizeConfig

DATA = {"source": "digits", "size": 16}
OPTIONS = {
    "threads": 1,
    "augment": "none",
    "budget": {"accuracy_drop_pp": 5.0},
    "recipes": ["minmax", "percentile"],
    "study_sizes": [],
}


SOFT = {"loss": "soft_targets", "temperature": 2.0, "alpha": 0.5}


def decided(options: dict[str, Any] | None = None) -> dict[str, Any]:
    """What the distill stage leaves where the baseline taught; without a loss's options it kept the lone student."""
    kept = [{"name": "alone", "options": None, "kept": options is None}]
    kept += [{"name": options["loss"], "options": options, "kept": True}] if options else []
    return {"teacher": {"kind": "baseline", "name": "baseline"}, "students": kept}


@dataclass(frozen=True)
class PrunedRun:
    """The digits and the last artifact before quantize."""

    data: Data
    source: Artifact


def config(**options: Any) -> QuantizeConfig:
    """A quick config, with `options` on top."""
    validated: QuantizeConfig = validate(QuantizeConfig, {**OPTIONS, **options}, "quantize")
    return validated


@pytest.fixture(scope="session")
def pruned_run(tmp_path_factory: pytest.TempPathFactory) -> PrunedRun:
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for
    from edgekit.training import fit

    root: Path = tmp_path_factory.mktemp("quantize") / "run"
    data = load(parse(DATA)).withhold_test()
    steps = [{"step": "scale", "factor": 1 / 255}]

    @functools.cache
    def trained(width: int) -> tuple[Any, Any]:
        spec = spec_for(data, "edgekit.models.ds_cnn:ds_cnn", {"width": width, "blocks": 2}, steps)
        module = store.build(spec)
        fit.fit(module, data, steps, TrainOptions(epochs=15, augment="none"), seed=0, device="cpu", threads=1)
        return module, spec

    def stage(name: str, source: Artifact | None, width: int) -> Artifact:
        out = artifacts.begin(root / name)
        store.save(out / "model", *trained(width))
        artifacts.write_json(out / "decision.json", decided(SOFT))
        return artifacts.seal(out, stage=name, source=source, data_digest=data.digest, config={}, metrics={})

    return PrunedRun(data, stage("prune", stage("distill", stage("profile", None, 32), 24), 24))


RUINED = "1.1.0"
"""The pointwise convolution that int8 ruins after `spoil`."""


def spoil(module: Any) -> Any:
    """The same function, but one channel into `RUINED` is 2,000 times as large: its step swallows all others."""
    import torch

    norm, pointwise = module.get_submodule("1.0.1"), module.get_submodule(RUINED)
    with torch.no_grad():
        for tensor in (norm.weight, norm.bias):
            tensor[0] *= 2000
        pointwise.weight[:, 0] /= 2000
    return module


@pytest.fixture(scope="session")
def spoilt(pruned_run: PrunedRun, tmp_path_factory: pytest.TempPathFactory) -> PrunedRun:
    from edgekit.models import store

    root: Path = tmp_path_factory.mktemp("spoilt") / "run"
    shutil.copytree(pruned_run.source.path.parent, root)
    module, spec = store.load(pruned_run.source.path / "model")
    shutil.rmtree(root / "prune")
    out = artifacts.begin(root / "prune")
    store.save(out / "model", spoil(module), spec)
    source = artifacts.load(root / "distill")
    sealed = artifacts.seal(
        out, stage="prune", source=source, data_digest=pruned_run.data.digest, config={}, metrics={}
    )
    return PrunedRun(pruned_run.data, sealed)


@pytest.fixture(scope="session")
def right(pruned_run: PrunedRun) -> Callable[[Any], Any]:
    """Whether a network answers each validation sample rightly."""
    from edgekit.models import store
    from edgekit.training import predict

    steps = store.read_spec(pruned_run.source.path / "model").preprocess
    split = pruned_run.data.validation
    return lambda network: predict.sample_scores(network, split, steps)
