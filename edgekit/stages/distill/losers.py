"""Losses that are surely worse than the best after a part of the epochs, and are trained no further.

All losses are trained for that part. A loss stops where its accuracy lies below that of the best one, by an interval
on the same validation samples (`edgekit.core.tasks.accuracy_drop`). The others go on from there, to the bits that they
would have had anyway. Successive halving (Jamieson & Talwalkar 2016) stops half of them; here doubt goes on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.core import progress, tasks
from edgekit.core.hashing import write_json
from edgekit.stages.distill.teacher import Candidate
from edgekit.stages.distill.training import Student, Trainer, best_so_far
from edgekit.training.losses import LossOptions

CONFIDENCE = 0.99
"""That a loss which is stopped is worse there."""
RECORD = "stopped-losses.json"


def stopped(trainer: Trainer, wanted: Sequence[LossOptions], teacher: Candidate) -> dict[str, Student]:
    """The students that stop, by their loss's name; empty where the config lets none stop, or there is one loss."""
    config = trainer.config
    until = math.ceil(config.stop_losses_after * config.epochs)
    if not until or until >= config.epochs or len(wanted) < 2:
        return {}
    path = trainer.place.folder / RECORD
    known = _known(path, trainer.place.key)
    # what stopped earlier has gone no further, what did not may have: it cannot be compared again
    tried: dict[str, Student] = {}
    some = [options for options in wanted if known is None or options.loss in known]
    for options in progress.each(some, f"first {until} epochs", best=lambda: best_so_far(tried.values())):
        tried[options.loss] = trainer.train_with_loss(options, teacher, until)
    if known is None:
        known = _refused(tried, until, config.epochs)
        write_json(path, {"key": trainer.place.key, "stopped": known})
    return {loss: replace(tried[loss], stopped=reason) for loss, reason in known.items()}


def _refused(tried: dict[str, Student], until: int, epochs: int) -> dict[str, str]:
    """Why each of those stops that are surely worse than the best."""
    best = max(tried.values(), key=lambda student: student.accuracy)
    found = {}
    for loss, student in tried.items():
        behind = tasks.drop(student.answered, best.answered, CONFIDENCE)
        if behind.bound_pp < 0:
            found[loss] = (
                f"stopped after {until} of {epochs} epochs: {student.accuracy:.2%} there, and {best.name} had "
                f"{best.accuracy:.2%}, at least {-behind.bound_pp:.2f} pp more ({CONFIDENCE:.0%} sure, "
                f"{behind.samples} samples)"
            )
    return found


def _known(path: Path, key: str) -> dict[str, str] | None:
    """What an earlier attempt at this very stage decided; None where there was none, or it was killed before."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        found: dict[str, str] = record["stopped"]
        return found if record["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
