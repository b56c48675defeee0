"""Golden samples that are run again while a model is in use, by the same interpreter that answers the user."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from edgekit.runner.errors import RunnerError
from edgekit.runner.selftest import compare_outputs


class CanaryResult(NamedTuple):
    """Whether `vectors` golden samples gave the recorded outputs within `atol`. `reason` explains a failure."""

    ok: bool
    vectors: int
    max_abs_delta: float
    atol: float
    reason: str | None


class Canary:
    """The golden samples of a model, run one at a time or all at once. For a model with states, they are one stream."""

    def __init__(self, model: Any) -> None:
        self._model, self.atol = model, float(model.manifest.golden["atol"])
        self._inputs, self._outputs = model.golden()
        self._next, self._states = 0, model.states()
        self.runs, self.failures = 0, 0
        self.last: CanaryResult | None = None
        """The result of the last run, or a failure as long as any sample failed the last time that it was run."""
        self._failed: dict[int, CanaryResult] = {}
        self.last_success_s: float | None = None
        """When a sample last gave the recorded outputs, in seconds since 1970."""

    @property
    def vectors(self) -> int:
        """The number of golden samples."""
        return len(self._inputs)

    def run_all(self) -> CanaryResult:
        """Run all samples, from the first on. An error of the interpreter is not raised, but returned as a failure."""
        self._next, worst = 0, CanaryResult(True, 0, 0.0, self.atol, None)
        for _ in range(self.vectors):
            result = self.run_next()
            delta = max(worst.max_abs_delta, result.max_abs_delta)
            worst = CanaryResult(
                worst.ok and result.ok, worst.vectors + 1, delta, self.atol, worst.reason or result.reason
            )
        self.last = worst
        return worst

    def run_next(self) -> CanaryResult:
        """Run only the next sample, and start again after the last one."""
        index = self._next
        if index == 0:
            self._states = self._model.states()
        self._next = (index + 1) % self.vectors
        self.runs += 1
        try:
            outputs = self._model.execute(self._model.prepare(self._inputs[index]), self._states)
            comparison = compare_outputs(
                np.array(outputs)[None], self._outputs[index : index + 1], self._model.manifest.golden
            )
            ok, delta, reason = comparison.ok, comparison.max_abs_delta, None
            if not ok:
                reason = f"golden sample {index}: max |Δ| {delta:.3g}, allowed {self.atol:.3g}"
        except RunnerError as error:
            ok, delta, reason = False, float("inf"), f"golden sample {index}: {error}"
        if ok:
            self.last_success_s = time.time()
        else:
            self.failures += 1
            self._next = 0 if self._model.manifest.states else self._next
        result = CanaryResult(ok, 1, delta, self.atol, reason)
        self._failed.pop(index, None)
        if not ok:
            self._failed[index] = result
        self.last = next(iter(self._failed.values()), result)
        return result
