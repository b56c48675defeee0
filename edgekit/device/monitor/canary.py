"""Golden vectors, answered again while a model is in use, by the very interpreter that answers its user."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from edgekit.runner.errors import RunnerError
from edgekit.runner.selftest import compare_outputs


class CanaryResult(NamedTuple):
    """Whether so many golden vectors gave what was recorded, within `atol`; `reason` in words where they did not."""

    ok: bool
    vectors: int
    max_abs_delta: float
    atol: float
    reason: str | None


class Canary:
    """The golden vectors of a model, one at a time or all at once; those of a model with states are one stream."""

    def __init__(self, model: Any) -> None:
        self._model, self.atol = model, float(model.manifest.golden["atol"])
        self._inputs, self._outputs = model.golden()
        self._next, self._states = 0, model.states()
        self.runs, self.failures = 0, 0
        self.last: CanaryResult | None = None
        """A failure for as long as any vector failed when it was run last; else of what was run last."""
        self._failed: dict[int, CanaryResult] = {}
        self.last_success_s: float | None = None
        """When the last vector gave what was recorded, seconds since 1970."""

    @property
    def vectors(self) -> int:
        """How many there are."""
        return len(self._inputs)

    def all(self) -> CanaryResult:
        """Run them all, from the first on; a failure of the interpreter is a result, too."""
        self._next, worst = 0, CanaryResult(True, 0, 0.0, self.atol, None)
        for _ in range(self.vectors):
            found = self.one()
            delta = max(worst.max_abs_delta, found.max_abs_delta)
            worst = CanaryResult(
                worst.ok and found.ok, worst.vectors + 1, delta, self.atol, worst.reason or found.reason
            )
        self.last = worst
        return worst

    def one(self) -> CanaryResult:
        """Run the next one alone."""
        place = self._next
        if place == 0:
            self._states = self._model.states()
        self._next = (place + 1) % self.vectors
        self.runs += 1
        try:
            found = self._model.execute(self._model.prepare(self._inputs[place]), self._states)
            verdict = compare_outputs(
                np.array(found)[None], self._outputs[place : place + 1], self._model.manifest.golden
            )
            ok, delta, reason = verdict.ok, verdict.max_abs_delta, None
            if not ok:
                reason = f"golden vector {place}: max |Δ| {delta:.3g}, allowed {self.atol:.3g}"
        except RunnerError as error:
            ok, delta, reason = False, float("inf"), f"golden vector {place}: {error}"
        if ok:
            self.last_success_s = time.time()
        else:
            self.failures += 1
            self._next = 0 if self._model.manifest.states else self._next
        result = CanaryResult(ok, 1, delta, self.atol, reason)
        self._failed.pop(place, None)
        if not ok:
            self._failed[place] = result
        self.last = next(iter(self._failed.values()), result)
        return result
