"""Do two models say the same? Compared on the same samples, at one boundary of the conversion."""

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


FLOAT64 = "float64 against float32"
FEW_ULPS = "inputs eight units in the last place apart"
ULPS = 8
"""What the sums of a layer or two differ by between engines; of a move by one, a network may round most away again."""
PATTERNS = 6
"""Of random signs, by which inputs are moved."""
MARGIN_DB = 6.0
"""By how much nearer than the file the network may be to itself: two roundings add, and each differs by chance."""
LEAST_SNR_DB = 20.0
"""Below this the network's answers are rounding, and no file can be held against them."""


@dataclass(frozen=True)
class Conditioning:
    """How the network agrees with itself; `median_db` is the SNR of the sample in the middle.

    `method` says what two computations were compared.
    """

    method: str
    snr_db: float
    median_db: float
    max_abs: float
    top1_agreement: float

    def describe(self) -> str:
        """`SNR 38.1 dB, max |Δ| 0.01 by float64 against float32`."""
        return f"SNR {self.snr_db:.1f} dB, max |Δ| {self.max_abs:.3g} by {self.method}"

    @property
    def is_measure(self) -> bool:
        """Whether the network's answers are more than rounding."""
        return self.snr_db >= LEAST_SNR_DB

    def tolerance(self, asked: Tolerance) -> Tolerance:
        """What may be asked of a float file: no more than the network keeps itself, less the margin."""
        factor = 10 ** (MARGIN_DB / 20)
        alike = 1 - factor * (1 - self.top1_agreement)
        return Tolerance(
            min(asked.min_top1_agreement, alike),
            min(asked.min_snr_db, self.snr_db - MARGIN_DB),
            None if asked.max_abs is None else max(asked.max_abs, factor * self.max_abs),
        )

    def explains(self, reference: np.ndarray, outputs: np.ndarray, asked_db: float) -> bool:
        """Whether the samples differ as rounding makes them differ.

        A wrong file differs on every sample; rounding is amplified more on some than on others, so that the sums alone,
        which the worst samples make up, would hide the fault.
        """
        return median_db(reference, outputs) >= min(asked_db, self.median_db - MARGIN_DB)


def measure_conditioning(
    model_folder: Path, inputs: np.ndarray, reference: np.ndarray, task: str
) -> Conditioning | None:
    """The saved network held against its own float32 answers; None where they are not finite.

    A network of PyTorch's is computed in float64. One that cannot be, as a file of another framework, gets its inputs
    moved by a few units in the last place; of the patterns of signs, the one that a sample answers least alike counts
    for it.

    A float file that leaves its tolerance was either made wrongly, or the network amplifies rounding, so that any two
    engines differ. The network alone, without any converter, shows which of the two it is.
    """
    other = _in_float64(model_folder, inputs)
    method = FLOAT64 if other is not None else FEW_ULPS
    if other is None:
        other = _farthest(reference, list(_moved(model_folder, inputs)))
    if other.shape != reference.shape or not (np.isfinite(reference).all() and np.isfinite(other).all()):
        return None
    found = compare(reference, other, task, inputs)
    return Conditioning(method, found.snr_db, median_db(reference, other), found.max_abs, found.top1_agreement)


def median_db(reference: np.ndarray, outputs: np.ndarray) -> float:
    """The SNR of each sample, dB; of these the one in the middle."""
    pairs = zip(reference[:, None], outputs[:, None], strict=True)
    return float(np.median([snr_db(one, other) for one, other in pairs]))


def _farthest(reference: np.ndarray, answers: list[np.ndarray]) -> np.ndarray:
    """Of each sample the answer that is farthest from the reference."""
    errors = [np.sum(np.square(one - reference, dtype=np.float64), axis=tuple(range(1, one.ndim))) for one in answers]
    return np.stack(answers)[np.argmax(errors, axis=0), np.arange(len(reference))]


def _in_float64(model_folder: Path, inputs: np.ndarray) -> np.ndarray | None:
    """The network's answers in float64; None where it is another framework's file, or its code names float32."""
    import torch

    if model_file.read(model_folder):
        return None

    def widened(module: torch.nn.Module) -> torch.nn.Module:
        torch.set_default_dtype(torch.float64)  # of what its forward makes, once its weights are loaded
        return module.double()

    usual = torch.get_default_dtype()
    try:
        found = evaluate.torch_outputs(model_folder, inputs.astype(np.float64), widened)
    except EdgekitError:  # its code names float32, or its operators have no float64
        return None
    finally:
        torch.set_default_dtype(usual)
    return found if found.dtype == np.float64 else None


def _moved(model_folder: Path, inputs: np.ndarray) -> Iterator[np.ndarray]:
    """Answers to inputs moved by a few units in the last place: all away from zero, all towards it, and by chance.

    Whole numbers move away from zero alone, since what reads them as a place in a list rounds down.
    """
    random = np.random.default_rng(0)
    stays = inputs == np.trunc(inputs)
    patterns = random.integers(0, 2, (PATTERNS, *inputs.shape)).astype(bool)
    for outward in (np.ones_like(stays), np.zeros_like(stays), *patterns):
        by = np.where(outward, ULPS, -ULPS) * np.spacing(inputs)  # which has the sign of the input
        moved = np.where((stays & ~outward) | (inputs == 0), inputs, inputs + by)
        yield evaluate.torch_outputs(model_folder, moved.astype(np.float32))
