"""A baseline from a model file: opened in a child process first, then described and kept unmodified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from edgekit.core.artifacts import Artifact
from edgekit.data import Data
from edgekit.models import store
from edgekit.models.files import TITLES, outputs
from edgekit.models.from_artifact import spec_for
from edgekit.stages.profile.config import Config
from edgekit.training.teachers import model_file


def load_model_file(
    source: Artifact, origin: dict[str, Any], data: Data, config: Config, out: Path
) -> tuple[nn.Module, store.ModelSpec]:
    """The user's model file, saved in `out`; says what it is. ModelError where it cannot be run, or knows no class."""
    path = source.file(origin["model"]["source"])
    for name in source.files:
        source.file(name)
    opened = model_file.open_file(path, origin["preprocess"])
    split = data.validation
    found, facts = model_file.logits_and_facts(
        opened,
        split.x,
        classes=len(data.classes),
        timeout_s=config.timeout_s,
        threads=config.threads,
        task=data.task,
        tensors=data.tensors or (),
    )
    outputs.check_answers(path.name, found, split.y, data.classes, origin["preprocess"], data.task)
    spec = spec_for(data, None, {}, origin["preprocess"], store.Source(**facts))
    store.save_source(out, path, spec)
    print(f"{path.name} is {describe(spec)}")
    return store.load(out)[0], spec


def describe(spec: store.ModelSpec) -> str:
    """The file in one line: format, outputs and cost."""
    found = spec.source
    assert found is not None
    known = {"probabilities": found.probabilities, "sigmoids": found.sigmoids}
    ends = "values" if spec.task == "regression" else next((name for name, yes in known.items() if yes), "logits")
    cost = f", {found.parameters:,} parameters, {found.macs / 1e6:.1f} M multiply-adds" if found.parameters else ""
    before = {"detection": "boxes and ", "segmentation": "a grid of "}.get(spec.task, "")
    of = f"{spec.num_classes} {ends}" if spec.task == "regression" else f"{before}{ends} of {spec.num_classes} classes"
    return f"{TITLES[found.kind]}: gives {of}{cost}"
