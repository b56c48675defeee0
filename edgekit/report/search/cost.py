"""What a study cost, rung by rung."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from edgekit.report.search.studies import RUNGS, Study

WORDS = {
    "shape": "by shape",
    "untrained": "timed untrained",
    "few_epochs": "few epochs",
    "all": "all epochs, files",
}


@dataclass(frozen=True)
class Spent:
    """A rung: how many trials came to it, how many it ended by state, and seconds of work. None: it is no rung."""

    name: str
    came: int | None
    ended: dict[str, int]
    seconds: float

    @property
    def title(self) -> str:
        """In words."""
        return WORDS.get(self.name, self.name)


def spent(study: Study) -> list[Spent]:
    """Of each rung, from cheap to dear, and of what else took time. A trial that was told again cost nothing."""
    trials = [each for each in study.trials if each["same_as"] is None]
    seconds: Counter[str] = Counter()
    for each in trials:
        seconds.update(each["took_s"])
    found = []
    for place, rung in enumerate(RUNGS):
        came = sum(RUNGS.index(each["rung"]) >= place for each in trials)
        ended = Counter(each["state"] for each in trials if each["rung"] == rung and each["state"] != "complete")
        found.append(Spent(rung, came, dict(ended), float(seconds.pop(rung, 0.0))))
    return [*found, *(Spent(name, None, {}, float(took)) for name, took in sorted(seconds.items()))]
