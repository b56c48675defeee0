"""DKD against the paper's definitions in numpy, and its identity with plain soft targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgekit.training.losses import Outputs, dkd, soft_targets

LABELS = np.array([0, 1, 2, 3, 4, 0, 1])


def logits(seed: int) -> np.ndarray:
    return 3 * np.random.default_rng(seed).standard_normal((7, 5))


def compute(student: np.ndarray, teacher: np.ndarray, labels: np.ndarray = LABELS, **options: float) -> float:
    pair = (Outputs(torch.from_numpy(student)), Outputs(torch.from_numpy(teacher)))
    return float(dkd.loss(*pair, torch.from_numpy(labels), dkd.Options(**options)))


def softmax(z: np.ndarray) -> np.ndarray:
    return np.exp(z) / np.exp(z).sum(-1, keepdims=True)


def parts(student: np.ndarray, teacher: np.ndarray, label: int, temperature: float) -> tuple[float, float, float]:
    """TCKD, NCKD and the teacher's probability of the label, for one sample."""
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    binary = [(p[label], q[label]), (1 - p[label], 1 - q[label])]
    others = [(p[i] / (1 - p[label]), q[i] / (1 - q[label])) for i in range(len(p)) if i != label]
    tckd, nckd = (sum(a * np.log(a / b) for a, b in pairs) for pairs in (binary, others))
    return tckd, nckd, p[label]


def cross_entropy(z: np.ndarray, labels: np.ndarray) -> float:
    return float(np.mean([-np.log(softmax(row)[label]) for row, label in zip(z, labels, strict=True)]))


@pytest.mark.parametrize(("temperature", "alpha", "beta"), [(4.0, 1.0, 8.0), (1.0, 0.5, 2.0), (2.5, 0.0, 1.0)])
def test_is_the_papers_formula(temperature: float, alpha: float, beta: float) -> None:
    each = [parts(s, t, label, temperature) for s, t, label in zip(logits(0), logits(1), LABELS, strict=True)]
    decoupled = np.mean([alpha * tckd + beta * nckd for tckd, nckd, _ in each])
    expected = cross_entropy(logits(0), LABELS) + temperature**2 * decoupled
    got = compute(logits(0), logits(1), temperature=temperature, alpha=alpha, beta=beta)
    assert got == pytest.approx(expected, rel=1e-12)


def test_the_defaults_are_the_authors() -> None:
    got = compute(logits(0), logits(1))
    assert got == pytest.approx(compute(logits(0), logits(1), temperature=4.0, alpha=1.0, beta=8.0), rel=1e-15)


@pytest.mark.parametrize("sample", range(7))
def test_one_sample_weighted_by_what_the_teacher_gives_the_others_is_plain_soft_targets(sample: int) -> None:
    """The paper's central identity: KD = TCKD + (1 - p of the label) * NCKD."""
    student, teacher, label = logits(0)[[sample]], logits(1)[[sample]], LABELS[[sample]]
    beta = float(1 - parts(student[0], teacher[0], label[0], 4.0)[2])
    plain = soft_targets.combined_loss(
        *(torch.from_numpy(x) for x in (student, teacher, label)), temperature=4.0, alpha=1.0
    )
    decoupled = compute(student, teacher, label, alpha=1.0, beta=beta) - cross_entropy(student, label)
    assert decoupled == pytest.approx(float(plain), rel=1e-10)


def test_a_student_equal_to_its_teacher_has_its_cross_entropy_left() -> None:
    assert compute(logits(1), logits(1)) == pytest.approx(cross_entropy(logits(1), LABELS), rel=1e-12)


def test_of_two_classes_only_the_labels_part_is_there() -> None:
    student, teacher = logits(0)[:, :2], logits(1)[:, :2]
    assert compute(student, teacher, LABELS % 2, beta=0.0) == compute(student, teacher, LABELS % 2, beta=100.0)


def test_the_labels_logit_does_not_reach_the_others_part() -> None:
    """Whatever the label's logit, the others' ranking counts: the gradient of NCKD at the label is zero."""
    student = torch.from_numpy(logits(0)).requires_grad_()
    labels = torch.from_numpy(LABELS)
    options = dkd.Options(alpha=0.0, beta=8.0)
    value = dkd.loss(Outputs(student), Outputs(torch.from_numpy(logits(1))), labels, options)
    (value - functional.cross_entropy(student, labels)).backward()
    at_label = student.grad.gather(1, labels[:, None])  # type: ignore[union-attr]
    assert at_label.abs().max() < 1e-15


def test_logits_beyond_any_mask_are_exact() -> None:
    """A teacher so sure of the label that a mask of -1000 would not hide it: the others still rank as they did."""
    confident = logits(1)
    confident[np.arange(7), LABELS] = 1e5
    nckd = np.mean([parts(s, t, label, 4.0)[1] for s, t, label in zip(logits(0), logits(1), LABELS, strict=True)])
    got = compute(logits(0), confident, alpha=0.0, beta=1.0) - cross_entropy(logits(0), LABELS)
    assert got == pytest.approx(16 * nckd, rel=1e-9)
