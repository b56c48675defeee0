"""An answer that stays until there is reason enough to leave it: one limit to enter, a lower one to leave.

That is a Schmitt trigger (Schmitt 1938). Limits are probabilities; of an anomaly detection they are multiples of the
threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgekit.runner.smoothing import Smoother
from edgekit.runner.smoothing._numbers import numbers, restated

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import Manifest


def maker(options: Mapping[str, Any], manifest: Manifest) -> Smoother:
    """A class stays until another reaches `enter`, or it falls below `leave` itself: then the window's own is taken.

    A label of several, and an anomaly, begin at `enter` and stay until they fall below `leave`.
    """
    enter, leave = options["enter"], options["leave"]
    held: list[int] = []

    def smooth(answer: Any) -> Any:
        nonlocal held
        values = numbers(answer, manifest)
        if manifest.task == "anomaly":
            held = [1] if values[0] > (leave if held else enter) * answer.threshold else []
        elif manifest.task == "classification":
            best = answer.index
            if not held or values[held[0]] < leave or values[best] >= enter:
                held = [best]
        else:
            on = [place for place, value in enumerate(values) if value >= (leave if place in held else enter)]
            held = sorted(on, key=lambda place: -values[place])
        return restated(answer, manifest, values, held)

    return smooth
