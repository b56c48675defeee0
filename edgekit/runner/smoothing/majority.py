"""What most of the last windows say. Numbers of labels are the share of the windows that say them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.runner.smoothing import Smoother
from edgekit.runner.smoothing._numbers import numbers, restated, said

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


def maker(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """Over `windows` windows; at a stream's beginning over those that there are.

    A class needs more windows than any other; of several with the most, the one that was said last. A label of several,
    and an anomaly, need more than half of the windows.
    """
    last: deque[list[int]] = deque(maxlen=options["windows"])

    def smooth(answer: Any) -> Any:
        last.append(said(answer, manifest))
        votes = [sum(place in each for each in last) for place in range(len(manifest.labels))]
        if manifest.task == "anomaly":
            return restated(answer, manifest, numbers(answer, manifest), [1] if 2 * votes[1] > len(last) else [])
        shares = [count / len(last) for count in votes]
        if manifest.task == "classification":
            most = max(votes)
            return restated(
                answer, manifest, shares, [next(each[0] for each in reversed(last) if votes[each[0]] == most)]
            )
        found = [place for place, count in enumerate(votes) if 2 * count > len(last)]
        return restated(answer, manifest, shares, sorted(found, key=lambda place: -votes[place]))

    return smooth
