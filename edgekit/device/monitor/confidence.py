"""Detect changes of the confidence while a model is in use, independently of the validation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgekit.device.monitor.adwin import Adwin

DELTA = 1e-7
"""The parameter `delta` of ADWIN, which gives at most one false alarm in 100,000 healthy, independent samples."""


class ConfidenceMonitor:
    """ADWIN on a stream of confidences. `change` describes the last detected change."""

    def __init__(self) -> None:
        self._adwin = Adwin(DELTA)
        self._count = 0
        self.change: dict[str, Any] | None = None

    def take(self, values: Iterable[float]) -> None:
        """Take confidences, oldest first."""
        for value in values:
            self._count += 1
            if self._adwin.update(value) and self._adwin.moved is not None:
                before, since = self._adwin.moved
                self.change = {"by": "ADWIN", "at": self._count, "before": before, "since": since}
