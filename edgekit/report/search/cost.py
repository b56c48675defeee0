"""What a study cost: which rung sifted out what, and where the work went."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edgekit.core.config import STAGES
from edgekit.report.search.studies import RUNGS, Study

WORDS = {
    "shape": "by shape",
    "untrained": "timed untrained",
    "few_epochs": "few epochs",
    "all": "all epochs, files",
}


@dataclass(frozen=True)
class Spent:
    """A rung: how many trials came to it, how many it ended by state, and the work of those that ended at it."""

    name: str
    came: int
    ended: dict[str, int]
    seconds: float

    @property
    def title(self) -> str:
        """In words."""
        return WORDS.get(self.name, self.name)


def spent(study: Study) -> list[Spent]:
    """Of each rung, from cheap to dear. A trial that was told again cost nothing."""
    trials = [each for each in study.trials if each["same_as"] is None]
    found = []
    for place, rung in enumerate(RUNGS):
        came = sum(RUNGS.index(each["rung"]) >= place for each in trials)
        mine = [each for each in trials if each["rung"] == rung]
        ended: Counter[str] = Counter(each["state"] for each in mine if each["state"] != "complete")
        found.append(Spent(rung, came, dict(ended), float(sum(sum(each["took_s"].values()) for each in mine))))
    return found


def parts(study: Study) -> dict[str, float]:
    """Seconds by what they went into: rungs and stages in their order, then what else there is."""
    seconds: Counter[str] = Counter()
    for each in study.trials:
        seconds.update(each["took_s"])
    order = [*RUNGS, *STAGES]
    names = sorted(seconds, key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: float(seconds[name]) for name in names}
