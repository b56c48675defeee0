"""Ensembles: several teachers whose outputs are averaged.

The teachers in Hinton, Vinyals, Dean, "Distilling the Knowledge in a Neural Network", 2015, are such ensembles. The
mean of logits corresponds to a geometric mean of probabilities. With the mean of probabilities, a teacher that is very
confident can be outvoted. Losses take logits and soften them themselves, so the mean probabilities are converted back
to logits.
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
MIN_PROBABILITY = 1e-6
"""Smallest mean probability, so that logits stay finite in float32. For several labels it limits 1 - p as well."""


class Ensemble(nn.Module):
    """Networks for the same task, each with its spec. The outputs are logits (N, classes), or those of another task.

    `mean` is one of MEANS. Only the tasks classification and multi_label have probabilities.
    """

    def __init__(self, members: Sequence[nn.Module], specs: Sequence[ModelSpec], mean: str = "logits") -> None:
        super().__init__()
        self.members, self.specs, self.mean = nn.ModuleList(members), tuple(specs), mean

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean outputs for inputs (N, …), as logits."""
        outputs = torch.stack([join_outputs(member(x)) for member in self.members])
        if self.mean == "logits":
            return outputs.mean(dim=0)
        if self.task == "multi_label":
            return torch.logit(outputs.sigmoid().mean(dim=0), eps=MIN_PROBABILITY)
        return outputs.softmax(dim=2).mean(dim=0).clamp_min(MIN_PROBABILITY).log()

    @property
    def task(self) -> Task:
        """The task of all members."""
        return self.specs[0].task

    def extra_repr(self) -> str:
        """Return the kind of mean, so that it is part of the digest of a teacher."""
        return f"mean={self.mean}"


def save(folder: Path, ensemble: Ensemble) -> None:
    """Save the members in `folder`, each in a folder of its own."""
    for number, (member, spec) in enumerate(zip(ensemble.members, ensemble.specs, strict=True), 1):
        store.save(folder / str(number), member, spec)
    write_json(folder / RECORD, {"mean": ensemble.mean, "members": len(ensemble.members)})


def load(folder: Path) -> Ensemble:
    """Load an ensemble that `save` wrote, in eval mode on the CPU."""
    record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    members = [store.load(folder / str(number)) for number in range(1, record["members"] + 1)]
    ensemble = Ensemble([module for module, _ in members], [spec for _, spec in members], record["mean"])
    return ensemble.eval()
