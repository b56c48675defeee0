"""A bundle, opened: raw sample in, labels out."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np

from edgekit.runner import bundle as bundles
from edgekit.runner import preprocess
from edgekit.runner.backends import Backend, open_backend
from edgekit.runner.errors import BackendError, BundleError, InputError, RunnerError
from edgekit.runner.manifest import Manifest


@dataclass(frozen=True)
class Prediction:
    """One answer. `scores` are the model's own (classes,) float32; `top` holds (label, probability), best first."""

    label: str
    index: int
    top: list[tuple[str, float]]
    scores: np.ndarray
    timing_ms: dict[str, float]


@dataclass(frozen=True)
class SelftestReport:
    """How the golden vectors came out. `top1_agreement` is a fraction 0-1; the scores may differ by `atol`."""

    interpreter: str
    version: str
    vectors: int
    max_abs_delta: float
    top1_agreement: float
    atol: float
    ok: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def load(path: str | os.PathLike[str], threads: int = 1, interpreter: str | None = None) -> Model:
    """Verify a bundle and open its model on the chosen interpreter, else on the preferred one installed."""
    return Model(bundles.read(path), threads=threads, interpreter=interpreter)


class Model:
    """A verified bundle on an interpreter. Not for use by several threads at once: open one each."""

    def __init__(self, bundle: bundles.Bundle, threads: int = 1, interpreter: str | None = None) -> None:
        manifest = bundle.manifest
        self.manifest: Manifest = manifest
        self.sha256 = bundle.sha256
        self.threads = threads
        self.backend: Backend = open_backend(
            manifest.target, bundle.model_files(), manifest.input, manifest.output, threads, interpreter
        )
        self._members: Mapping[str, bytes] = bundle.members
        self._pipeline = preprocess.pipeline(manifest.preprocess)
        self._raw_dtype = np.dtype(manifest.raw.dtype)

    def prepare(self, raw: np.ndarray) -> np.ndarray:
        """The model's input for one raw sample; InputError unless it is exactly what the bundle promises."""
        spec = self.manifest.raw
        if not isinstance(raw, np.ndarray) or raw.shape != spec.shape or raw.dtype != self._raw_dtype:
            got = f"{raw.dtype}{list(raw.shape)}" if isinstance(raw, np.ndarray) else type(raw).__name__
            raise InputError(f"sample: got {got}; the bundle takes {spec.dtype}{list(spec.shape)} ({spec.kind})")
        if self._raw_dtype.kind == "f" and not np.isfinite(raw).all():
            raise InputError("sample: holds NaN or infinity; check the sensor or the file")
        return preprocess.to_layout(self._pipeline(raw)[None], self.manifest.input.layout)

    def execute(self, x: np.ndarray) -> np.ndarray:
        """The model's scores (classes,) for a prepared input; BackendError when the interpreter fails."""
        try:
            scores = self.backend.run(x)[0]
        except RunnerError:
            raise
        except Exception as error:  # interpreters share no base class for their errors
            raise BackendError(f"{self.backend.name} failed while running the model: {error}") from error
        return scores

    def predict(self, raw: np.ndarray, top_k: int = 5) -> Prediction:
        """Labels for one raw sample."""
        started = perf_counter_ns()
        x = self.prepare(raw)
        prepared = perf_counter_ns()
        scores = self.execute(x)
        executed = perf_counter_ns()
        probabilities = softmax(scores)
        best = (-scores).argsort(kind="stable")[: _at_least_one(top_k)]
        labels = self.manifest.labels
        top = [(labels[index], probability) for index, probability in zip(best.tolist(), probabilities[best].tolist())]
        index = int(best[0])
        done = perf_counter_ns()
        timing_ms = {
            "preprocess": (prepared - started) / 1e6,
            "execute": (executed - prepared) / 1e6,
            "postprocess": (done - executed) / 1e6,
        }
        return Prediction(labels[index], index, top, scores, timing_ms)

    def golden(self) -> tuple[np.ndarray, np.ndarray]:
        """Golden vectors: raw samples (n, *raw) and the scores recorded for them (n, classes)."""
        manifest = self.manifest
        inputs, outputs = self._array(manifest.golden["inputs"]), self._array(manifest.golden["outputs"])
        wanted = (len(inputs), len(manifest.labels))
        if len(inputs) == 0 or outputs.shape != wanted or not np.isfinite(outputs).all():
            raise BundleError(f"golden vectors: outputs {list(outputs.shape)}, needed finite {list(wanted)}")
        return inputs, outputs

    def selftest(self) -> SelftestReport:
        """Run every golden vector and hold the scores against the recorded ones."""
        inputs, expected = self.golden()
        scores = np.stack([self.execute(self.prepare(raw)) for raw in inputs])
        delta = float(np.max(np.abs(scores.astype(np.float64) - expected)))
        agreement = float(np.mean(scores.argmax(axis=1) == expected.argmax(axis=1)))
        atol, top1 = self.manifest.golden["atol"], self.manifest.golden["top1"]
        ok = delta <= atol and (agreement == 1.0 or not top1)
        return SelftestReport(self.backend.name, self.backend.version, len(inputs), delta, agreement, atol, ok)

    def _array(self, member: str) -> np.ndarray:
        try:
            value = np.load(io.BytesIO(self._members[member]), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise BundleError(f"{member}: not a plain .npy array ({error})") from None
        if not isinstance(value, np.ndarray) or value.ndim < 1:
            raise BundleError(f"{member}: not an array of vectors")
        return value


def softmax(scores: np.ndarray) -> np.ndarray:
    """Probabilities (classes,) of scores (classes,), stable for large ones; BackendError for NaN or infinity."""
    if not math.isfinite(np.add.reduce(scores)):
        raise BackendError("the model gave NaN or infinite scores; run selftest, and try another interpreter")
    shifted = scores - np.maximum.reduce(scores)
    np.exp(shifted, out=shifted)
    shifted /= np.add.reduce(shifted)
    return shifted


def _at_least_one(top_k: int) -> int:
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise InputError(f"top_k: got {top_k!r}; use a whole number from 1")
    return top_k
