"""Whether confidence moved while a model was in use, whatever validation said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgekit.device.monitor.adwin import Adwin
from edgekit.device.monitor.page_hinkley import PageHinkley

DELTA, THRESHOLD = 1e-7, 100.0
"""Of ADWIN and of Page and Hinkley's test: at most one false alarm in 100,000 sound, independent samples."""


class Confidence:
    """Both tests, one value after another; `change` is what was found last."""

    def __init__(self) -> None:
        self._adwin, self._page_hinkley = Adwin(DELTA), PageHinkley(threshold=THRESHOLD)
        self._seen = 0
        self.change: dict[str, Any] | None = None

    def take(self, values: Iterable[float]) -> None:
        """Confidences, oldest first."""
        for value in values:
            self._seen += 1
            steady = self._page_hinkley.mean
            moved = self._page_hinkley.update(value)
            if self._adwin.update(value) and self._adwin.moved is not None:
                before, since = self._adwin.moved
                self.change = {"by": "ADWIN", "at": self._seen, "before": before, "since": since}
            elif moved:
                self.change = {"by": "Page-Hinkley", "at": self._seen, "before": steady, "since": value}
