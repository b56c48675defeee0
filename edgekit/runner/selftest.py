"""Does a bundle give here the answers that were recorded where it was made?"""

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
        """What a selftest asks of an opened bundle."""

        manifest: Manifest
        backend: Backend

        def golden(self) -> tuple[np.ndarray, np.ndarray]: ...

        def prepare(self, raw: np.ndarray) -> np.ndarray: ...

        def states(self) -> States | None: ...

        def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray: ...


class Comparison(NamedTuple):
    """Whether outputs are those recorded, and how near."""

    max_abs_delta: float
    top1_agreement: float
    ok: bool


@dataclass(frozen=True)
class SelftestReport:
    """How the golden vectors came out; the scores may differ by `atol`.

    `top1_agreement` is the fraction, 0-1, with the recorded label, or, where answers have none, within `atol`.
    """

    interpreter: str
    version: str
    golden_vectors: int
    max_abs_delta: float
    top1_agreement: float
    atol: float
    ok: bool

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def golden_vectors(manifest: Manifest, members: Mapping[str, bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Golden vectors (n, *raw) and (n, *output); BundleError where they are no plain arrays, or do not fit."""
    inputs, outputs = (_array(manifest.golden[key], members) for key in ("inputs", "outputs"))
    wanted = (len(inputs), *manifest.output_shape)
    if len(inputs) == 0 or outputs.shape != wanted or not np.isfinite(outputs).all():
        raise BundleError(f"golden vectors: outputs {list(outputs.shape)}, needed finite {list(wanted)}")
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
    """Run the golden vectors, as many as fit into `most_s`, and hold the outputs against the recorded ones.

    Those of a model with states are one stream, from zeros on.
    """
    inputs, expected = model.golden()
    begun = perf_counter()
    found, states = [], model.states()
    for raw in inputs:
        found.append(model.execute(model.prepare(raw), states))
        if most_s is not None and perf_counter() - begun > most_s:
            break
    verdict = compare_outputs(np.stack(found), expected[: len(found)], model.manifest.golden)
    backend, atol = model.backend, model.manifest.golden["atol"]
    return SelftestReport(backend.name, backend.version, len(found), *verdict[:2], atol, verdict.ok)


def compare_outputs(outputs: np.ndarray, expected: np.ndarray, golden: Mapping[str, Any]) -> Comparison:
    """Outputs (n, …) against those recorded, by the manifest's `golden`: its `atol`, and its `top1` where it asks."""
    deltas = np.abs(outputs.astype(np.float64) - expected).reshape(len(outputs), -1).max(axis=1)
    delta = float(np.max(deltas))
    alike = outputs.argmax(axis=-1) == expected.argmax(axis=-1) if golden["top1"] else deltas <= golden["atol"]
    agreement = float(np.mean(alike))
    ok = delta <= golden["atol"] and (agreement == 1.0 or not golden["top1"])  # a NaN is no match
    return Comparison(delta, agreement, ok)
