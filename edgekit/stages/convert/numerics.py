"""Compare the outputs of two models on the same samples, and decide whether they agree within a tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.core import tasks
from edgekit.core.errors import EdgekitError
from edgekit.targets import evaluate, model_file, tensors

if TYPE_CHECKING:
    import torch

COSINE_DIGITS = 9
SNR_CEILING_DB = 200.0
"""The SNR that is reported for equal outputs, because JSON has no infinity. Two computations in float32 agree to about
150 dB."""


@dataclass(frozen=True)
class Agreement:
    """How close the outputs of a file are to those of the step before.

    `max_abs` is the largest absolute difference. `top1_agreement` is the fraction of `samples` with the same answer, as
    the task defines it (for classification, the same top class). `cosine` is the mean cosine similarity over the
    samples, `worst_cosine` the lowest one.
    """

    max_abs: float
    snr_db: float
    top1_agreement: float
    samples: int
    cosine: float = 1.0
    worst_cosine: float = 1.0


@dataclass(frozen=True)
class Tolerance:
    """The limits of an agreement. `max_abs` is None if the largest absolute difference is not limited."""

    min_top1_agreement: float
    min_snr_db: float
    max_abs: float | None = None

    def required_agreement(self, samples: int) -> float:
        """Return the required fraction of equal answers, for a number of samples.

        The number of answers that may differ is rounded up. With 40 samples, 0.98 would otherwise allow no answer to
        differ, although the answer to a sample on the border of two classes depends on the last bits, which are not the
        same on all processors.
        """
        return (samples - math.ceil(round((1 - self.min_top1_agreement) * samples, 6))) / samples


def compare(
    reference: np.ndarray, outputs: np.ndarray, task: str = "classification", inputs: np.ndarray | None = None
) -> Agreement:
    """Compare outputs with a reference, both of shape (n, …).

    `inputs` are the network inputs, which some tasks need to compare answers. The SNR is
    10 log10(Σ reference² / Σ (reference − outputs)²). If there is a NaN or Inf, nothing agrees.
    """
    if reference.shape != outputs.shape:
        raise ValueError(f"outputs of shape {outputs.shape} against a reference of shape {reference.shape}")
    if not (np.isfinite(reference).all() and np.isfinite(outputs).all()):
        return Agreement(math.inf, -math.inf, 0.0, len(reference), 0.0, 0.0)
    error = reference.astype(np.float64) - outputs.astype(np.float64)
    same = tasks.load_task(task).same_answers(reference, outputs, inputs)
    cosine = tensors.cosines(reference, outputs).round(COSINE_DIGITS)
    return Agreement(
        max_abs=float(np.max(np.abs(error))),
        snr_db=snr_db(reference, outputs),
        top1_agreement=float(np.mean(same)),
        samples=len(same),
        cosine=float(cosine.mean().round(COSINE_DIGITS)),
        worst_cosine=float(cosine.min()),
    )


def snr_db(reference: np.ndarray, outputs: np.ndarray) -> float:
    """Return 10 log10(Σ reference² / Σ (reference − outputs)²), limited to ± SNR_CEILING_DB."""
    expected = reference.astype(np.float64)
    signal, noise = float(np.sum(expected**2)), float(np.sum((expected - outputs.astype(np.float64)) ** 2))
    if noise == 0:
        return SNR_CEILING_DB
    return min(SNR_CEILING_DB, 10 * math.log10(signal / noise)) if signal else -SNR_CEILING_DB


def tolerance_faults(agreement: Agreement, tolerance: Tolerance, task: str = "classification") -> list[str]:
    """Describe every measure outside its tolerance, with its value and limit; empty if there is none."""
    messages = []
    required = tolerance.required_agreement(agreement.samples)
    if not agreement.top1_agreement >= required:
        share = "top-1 agreement" if task == "classification" else "fraction of equal answers"
        messages.append(f"{share} {agreement.top1_agreement:.4f}, at least {required:.4g} required")
    if not agreement.snr_db >= tolerance.min_snr_db:
        messages.append(f"SNR {agreement.snr_db:.1f} dB, at least {tolerance.min_snr_db:g} dB required")
    if tolerance.max_abs is not None and not agreement.max_abs <= tolerance.max_abs:
        messages.append(f"max |Δ| {agreement.max_abs:.3g}, at most {tolerance.max_abs:g} allowed")
    return messages


FLOAT64 = "float64 against float32"
MOVED_INPUTS = "inputs eight units in the last place apart"
ULPS = 8
"""By how many units in the last place inputs are moved. The sums that two engines compute differ by about as much, and
a change by a single unit could be rounded away."""
PATTERNS = 6
"""Number of random patterns of signs with which inputs are moved."""
MARGIN_DB = 6.0
"""How far the SNR of a file may be below the SNR of the network compared with itself, because rounding errors add up
and vary by chance."""
MIN_SNR_DB = 20.0
"""If the SNR of the network compared with itself is below this, its outputs consist of rounding errors, and no file can
be compared with them."""


@dataclass(frozen=True)
class Conditioning:
    """How much rounding changes the network's own outputs.

    `method` names the two computations that were compared; `median_db` is the median SNR over the samples.
    """

    method: str
    snr_db: float
    median_db: float
    max_abs: float
    top1_agreement: float

    def describe(self) -> str:
        """Describe the change as text, for example `SNR 38.1 dB, max |Δ| 0.01 by float64 against float32`."""
        return f"SNR {self.snr_db:.1f} dB, max |Δ| {self.max_abs:.3g} by {self.method}"

    @property
    def is_conclusive(self) -> bool:
        """Whether the network's outputs are more than rounding errors, so that files can be compared with them."""
        return self.snr_db >= MIN_SNR_DB

    def tolerance(self, requested: Tolerance) -> Tolerance:
        """Return the tolerance of float files: the requested one, or what the network reaches compared with itself.

        For each limit, the looser of the two applies. What the network reaches is first loosened by a margin.
        """
        factor = 10 ** (MARGIN_DB / 20)
        agreement = 1 - factor * (1 - self.top1_agreement)
        return Tolerance(
            min(requested.min_top1_agreement, agreement),
            min(requested.min_snr_db, self.snr_db - MARGIN_DB),
            None if requested.max_abs is None else max(requested.max_abs, factor * self.max_abs),
        )

    def explains(self, reference: np.ndarray, outputs: np.ndarray, requested_db: float) -> bool:
        """Return whether the median sample differs by no more than rounding explains.

        A wrong file differs on every sample, whereas rounding is amplified more on some samples than on others. The SNR
        over all samples cannot distinguish these two cases, because the worst samples dominate it.
        """
        return median_db(reference, outputs) >= min(requested_db, self.median_db - MARGIN_DB)


def measure_conditioning(
    model_folder: Path, inputs: np.ndarray, reference: np.ndarray, task: str
) -> Conditioning | None:
    """Measure how much rounding changes the outputs of a saved network. Returns None if they are not finite.

    If a float file exceeds its tolerance, either the converter made an error, or the network amplifies rounding so much
    that any two engines differ. Comparing the network with itself, without a converter, shows which of the two it is.

    A PyTorch network is computed in float64 and compared with its outputs in float32. If that is not possible, as with
    files of other frameworks, the inputs are moved by a few units in the last place instead, in several patterns of
    signs. For each sample, the pattern with the largest effect counts.
    """
    other = _float64_outputs(model_folder, inputs)
    method = FLOAT64 if other is not None else MOVED_INPUTS
    if other is None:
        other = _farthest(reference, list(_outputs_of_moved_inputs(model_folder, inputs)))
    if other.shape != reference.shape or not (np.isfinite(reference).all() and np.isfinite(other).all()):
        return None
    agreement = compare(reference, other, task, inputs)
    return Conditioning(
        method, agreement.snr_db, median_db(reference, other), agreement.max_abs, agreement.top1_agreement
    )


def median_db(reference: np.ndarray, outputs: np.ndarray) -> float:
    """Return the SNR in dB of the median sample."""
    pairs = zip(reference[:, None], outputs[:, None], strict=True)
    return float(np.median([snr_db(one, other) for one, other in pairs]))


def _farthest(reference: np.ndarray, answers: list[np.ndarray]) -> np.ndarray:
    """Return, for each sample, the one of the `answers` that is farthest from the reference."""
    errors = [np.sum(np.square(one - reference, dtype=np.float64), axis=tuple(range(1, one.ndim))) for one in answers]
    return np.stack(answers)[np.argmax(errors, axis=0), np.arange(len(reference))]


def _float64_outputs(model_folder: Path, inputs: np.ndarray) -> np.ndarray | None:
    """Return the network's outputs in float64.

    Returns None for a file of another framework, and for a network whose code requires float32.
    """
    import torch

    if model_file.read(model_folder):
        return None

    def widened(module: torch.nn.Module) -> torch.nn.Module:
        torch.set_default_dtype(torch.float64)  # for the tensors that the network's forward creates
        return module.double()

    default_dtype = torch.get_default_dtype()
    try:
        outputs = evaluate.torch_outputs(model_folder, inputs.astype(np.float64), widened)
    except EdgekitError:  # the network's code requires float32, or one of its operators does not support float64
        return None
    finally:
        torch.set_default_dtype(default_dtype)
    return outputs if outputs.dtype == np.float64 else None


def _outputs_of_moved_inputs(model_folder: Path, inputs: np.ndarray) -> Iterator[np.ndarray]:
    """Yield outputs for inputs that are moved by a few units in the last place.

    The inputs are first moved away from zero, then towards it, then in random directions. Values that are integers are
    only moved away from zero, because operators that use them as an index round down.
    """
    random = np.random.default_rng(0)
    is_integer = inputs == np.trunc(inputs)
    patterns = random.integers(0, 2, (PATTERNS, *inputs.shape)).astype(bool)
    for outward in (np.ones_like(is_integer), np.zeros_like(is_integer), *patterns):
        offset = np.where(outward, ULPS, -ULPS) * np.spacing(inputs)  # np.spacing has the sign of the input
        moved = np.where((is_integer & ~outward) | (inputs == 0), inputs, inputs + offset)
        yield evaluate.torch_outputs(model_folder, moved.astype(np.float32))
