"""Do two models say the same? Compared on the same samples, at one boundary of the conversion."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgekit.core import tasks
from edgekit.targets import similarity

COSINE_DIGITS = 9
SNR_CEILING_DB = 200.0
"""Reported for equal outputs: JSON has no infinity, and float32 ends far below it (about 150 dB)."""


@dataclass(frozen=True)
class Agreement:
    """How near the outputs of one step are to those of the step before.

    `top1_agreement` is the fraction of `samples` that both answer alike, as the task has it: of classes the first.
    `cosine` is the mean over samples, `worst_cosine` that of the sample it is least of.
    """

    max_abs: float
    snr_db: float
    top1_agreement: float
    samples: int
    cosine: float = 1.0
    worst_cosine: float = 1.0


@dataclass(frozen=True)
class Tolerance:
    """What a boundary must keep; `max_abs` None: not asked for."""

    min_top1_agreement: float
    min_snr_db: float
    max_abs: float | None = None

    def least_agreement(self, samples: int) -> float:
        """The share asked of so many samples: what may differ is rounded up to a whole sample.

        Of 40, 0.98 leaves less than one; but the answer of a sample that lies on the border of two classes turns with
        the last bits, which differ from processor to processor.
        """
        return (samples - math.ceil(round((1 - self.min_top1_agreement) * samples, 6))) / samples


def compare(
    reference: np.ndarray, outputs: np.ndarray, task: str = "classification", inputs: np.ndarray | None = None
) -> Agreement:
    """Both (n, …), `inputs` as for the task's `same`; NaN or Inf agrees with nothing.

    SNR = 10 log10(Σ reference² / Σ (reference − outputs)²).
    """
    if reference.shape != outputs.shape:
        raise ValueError(f"outputs of shape {outputs.shape} against a reference of shape {reference.shape}")
    if not (np.isfinite(reference).all() and np.isfinite(outputs).all()):
        return Agreement(math.inf, -math.inf, 0.0, len(reference), 0.0, 0.0)
    error = reference.astype(np.float64) - outputs.astype(np.float64)
    same = tasks.named(task).same(reference, outputs, inputs)
    cosine = similarity.cosines(reference, outputs).round(COSINE_DIGITS)
    return Agreement(
        max_abs=float(np.max(np.abs(error))),
        snr_db=snr_db(reference, outputs),
        top1_agreement=float(np.mean(same)),
        samples=len(same),
        cosine=float(cosine.mean().round(COSINE_DIGITS)),
        worst_cosine=float(cosine.min()),
    )


def snr_db(reference: np.ndarray, outputs: np.ndarray) -> float:
    """10 log10(Σ reference² / Σ (reference − outputs)²), within ± SNR_CEILING_DB."""
    expected = reference.astype(np.float64)
    signal, noise = float(np.sum(expected**2)), float(np.sum((expected - outputs.astype(np.float64)) ** 2))
    if noise == 0:
        return SNR_CEILING_DB
    return min(SNR_CEILING_DB, 10 * math.log10(signal / noise)) if signal else -SNR_CEILING_DB


def faults(found: Agreement, tolerance: Tolerance, task: str = "classification") -> list[str]:
    """What left its tolerance, with figure and limit; empty when the boundary holds."""
    said = []
    least = tolerance.least_agreement(found.samples)
    if not found.top1_agreement >= least:
        share = "top-1 agreement" if task == "classification" else "share of answers alike"
        said.append(f"{share} {found.top1_agreement:.4f}, at least {least:.4g} asked")
    if not found.snr_db >= tolerance.min_snr_db:
        said.append(f"SNR {found.snr_db:.1f} dB, at least {tolerance.min_snr_db:g} dB asked")
    if tolerance.max_abs is not None and not found.max_abs <= tolerance.max_abs:
        said.append(f"max |Δ| {found.max_abs:.3g}, at most {tolerance.max_abs:g} asked")
    return said
