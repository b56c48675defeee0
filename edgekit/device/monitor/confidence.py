"""Whether confidence moved while a model was in use, whatever validation said."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgekit.device.monitor.adwin import Adwin

DELTA = 1e-7
"""The confidence of ADWIN: at most one false alarm in 100,000 sound, independent samples."""


class ConfidenceMonitor:
    """ADWIN on one confidence after another; `change` describes the change that was found last."""

    def __init__(self) -> None:
        self._adwin = Adwin(DELTA)
        self._seen = 0
        self.change: dict[str, Any] | None = None

    def take(self, values: Iterable[float]) -> None:
        """Confidences, oldest first."""
        for value in values:
            self._seen += 1
            if self._adwin.update(value) and self._adwin.moved is not None:
                before, since = self._adwin.moved
                self.change = {"by": "ADWIN", "at": self._seen, "before": before, "since": since}
