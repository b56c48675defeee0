"""The self-test: does a bundle reproduce the recorded answers on this device?"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edgekit.runner.errors import BundleError

if TYPE_CHECKING:
    from typing import Protocol

    from edgekit.runner.backends import Backend, States
    from edgekit.runner.bundle.manifest import Manifest

    class Model(Protocol):
        """The part of an opened bundle that a self-test uses."""

        manifest: Manifest
        backend: Backend

        def golden(self) -> tuple[np.ndarray, np.ndarray]: ...

        def prepare(self, raw: np.ndarray) -> np.ndarray: ...

        def states(self) -> States | None: ...

        def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray: ...


class Comparison(NamedTuple):
    """Whether outputs match the recorded ones, and how closely."""

    max_abs_delta: float
    top1_agreement: float
    ok: bool


@dataclass(frozen=True)
class SelftestReport:
    """The result of a self-test. Scores may differ by at most `atol`.

    `top1_agreement` is the fraction, 0-1, of samples with the recorded label, or within `atol` for tasks without
    labels.
    """

    interpreter: str
    version: str
    vectors: int
    max_abs_delta: float
    top1_agreement: float
    atol: float
    ok: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict for JSON."""
        return asdict(self)


def golden_vectors(manifest: Manifest, members: Mapping[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Return golden samples (n, *raw) and their recorded outputs (n, *output).

    Raises BundleError if they are not plain arrays, or their shapes do not match.
    """
    inputs, outputs = (_array(manifest.golden[key], members) for key in ("inputs", "outputs"))
    expected_shape = (len(inputs), *manifest.output_shape)
    if len(inputs) == 0 or outputs.shape != expected_shape or not np.isfinite(outputs).all():
        raise BundleError(
            f"golden samples: outputs {list(outputs.shape)}, but they must be finite {list(expected_shape)}"
        )
    return inputs, outputs


def _array(member: str, members: Mapping[str, bytes]) -> np.ndarray:
    try:
        value = np.load(io.BytesIO(members[member]), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise BundleError(f"{member}: not a plain .npy array ({error})") from None
    if not isinstance(value, np.ndarray) or value.ndim < 1:
        raise BundleError(f"{member}: not an array of vectors")
    return value


def selftest(model: Model, most_s: float | None = None) -> SelftestReport:
    """Run the golden samples, as many as fit into `most_s` seconds, and compare the outputs with the recorded ones.

    For a model with states the samples are one stream, which starts from zeros.
    """
    inputs, expected = model.golden()
    started = perf_counter()
    outputs, states = [], model.states()
    for raw in inputs:
        outputs.append(model.execute(model.prepare(raw), states))
        if most_s is not None and perf_counter() - started > most_s:
            break
    comparison = compare_outputs(np.stack(outputs), expected[: len(outputs)], model.manifest.golden)
    backend, atol = model.backend, model.manifest.golden["atol"]
    return SelftestReport(backend.name, backend.version, len(outputs), *comparison[:2], atol, comparison.ok)


def compare_outputs(outputs: np.ndarray, expected: np.ndarray, golden: Mapping[str, Any]) -> Comparison:
    """Compare outputs (n, …) with the recorded ones by `atol`, and by `top1` if the manifest's `golden` asks for it."""
    deltas = np.abs(outputs.astype(np.float64) - expected).reshape(len(outputs), -1).max(axis=1)
    max_delta = float(np.max(deltas))
    agrees = outputs.argmax(axis=-1) == expected.argmax(axis=-1) if golden["top1"] else deltas <= golden["atol"]
    agreement = float(np.mean(agrees))
    ok = max_delta <= golden["atol"] and (agreement == 1.0 or not golden["top1"])  # NaN never matches
    return Comparison(max_delta, agreement, ok)
