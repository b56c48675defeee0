"""Several teachers that answer as one: the mean of what they say.

Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015, whose teachers are such ensembles. The mean
of logits is a geometric mean of probabilities; the mean of probabilities lets a teacher that is sure of a class be
outvoted. A loss takes logits and softens them itself, so the latter are given as the logits of the mean.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from edgekit.core.hashing import write_json
from edgekit.core.tasks import Task
from edgekit.models import store
from edgekit.models.eager import join_outputs
from edgekit.models.spec import ModelSpec

RECORD = "ensemble.json"
MEANS = ("logits", "probabilities")
LEAST = 1e-6
"""Smallest mean probability, and of several labels its distance from 1: their logits stay finite in float32."""


class Ensemble(nn.Module):
    """Networks of one task, each with its spec. Its outputs are logits (N, classes), or whatever else the task's are.

    `mean` is one of MEANS; probabilities are those of a classification or of several labels.
    """

    def __init__(self, members: Sequence[nn.Module], specs: Sequence[ModelSpec], mean: str = "logits") -> None:
        super().__init__()
        self.members, self.specs, self.mean = nn.ModuleList(members), tuple(specs), mean

    def forward(self, x: Tensor) -> Tensor:
        """The mean answer to inputs (N, …), as logits."""
        answers = torch.stack([join_outputs(member(x)) for member in self.members])
        if self.mean == "logits":
            return answers.mean(dim=0)
        if self.task == "multi_label":
            return torch.logit(answers.sigmoid().mean(dim=0), eps=LEAST)
        return answers.softmax(dim=2).mean(dim=0).clamp_min(LEAST).log()

    @property
    def task(self) -> Task:
        """That of all members."""
        return self.specs[0].task

    def extra_repr(self) -> str:
        """What its state does not say, for the digest of a teacher."""
        return f"mean={self.mean}"


def save(folder: Path, ensemble: Ensemble) -> None:
    """Leave its members in `folder`, each in a folder of its own."""
    for number, (member, spec) in enumerate(zip(ensemble.members, ensemble.specs, strict=True), 1):
        store.save(folder / str(number), member, spec)
    write_json(folder / RECORD, {"mean": ensemble.mean, "members": len(ensemble.members)})


def load(folder: Path) -> Ensemble:
    """What `save` left, in eval mode on the CPU."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    found = [store.load(folder / str(number)) for number in range(1, record["members"] + 1)]
    ensemble = Ensemble([module for module, _ in found], [spec for _, spec in found], record["mean"])
    return ensemble.eval()
