"""Contract of every distillation loss in edgekit/training/losses; each formula has a file of its own beside this."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from edgekit.core.errors import ConfigError
from edgekit.training import losses
from edgekit.training.losses import Outputs

ALL = ", ".join(losses.NAMES)
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def outputs(seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float64) -> Outputs:
    """Four classes and, whoever needs them, two feature maps; logits `scale` wide."""
    random = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(6, 4, generator=random, dtype=dtype)
    return Outputs(logits, tuple(torch.randn(6, 3, side, side, generator=random, dtype=dtype) for side in (4, 2)))


def compute(name: str, student: Outputs, teacher: Outputs, **options: Any) -> Tensor:
    return losses.function(losses.parse({"loss": name, **options}))(student, teacher, LABELS)


def bounds(name: str) -> list[tuple[str, float]]:
    """(option, value just out of its range) for every bound that the options' JSON schema declares."""
    fields = type(losses.parse({"loss": name})).model_json_schema()["properties"]
    low = [(key, field["minimum"] - 0.01) for key, field in fields.items() if "minimum" in field]
    high = [(key, field["maximum"] + 0.01) for key, field in fields.items() if "maximum" in field]
    return low + high


def test_the_folder_holds_these() -> None:
    assert set(losses.NAMES) >= {"dist", "dkd", "hints", "soft_targets"}
    assert list(losses.NAMES) == sorted(losses.NAMES)


def test_a_loss_says_whether_it_needs_features() -> None:
    assert losses.needs_features(losses.parse({"loss": "hints"}))
    assert not losses.needs_features(losses.parse({"loss": "soft_targets"}))


def test_options_are_checked_without_torch() -> None:
    code = (
        "import sys\n"
        "from edgekit.training import losses\n"
        "for name in losses.NAMES:\n"
        "    losses.needs_features(losses.parse({'loss': name}))\n"
        "print(*sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"loss": "dkdd"}, "distill.losses.loss: got 'dkdd'; did you mean \"dkd\"?"),
        ({"loss": "nothing alike"}, f"allowed here: {ALL}"),
        ({"loss": "__init__"}, "distill.losses.loss: got '__init__'"),
        ({"loss": 3}, f"distill.losses.loss: got 3; it must be one of {ALL}"),
        ({"beta": 4.0}, f"it needs `loss:` with one of {ALL}"),
        ("dkd", "distill.losses: got 'dkd'; it needs `loss:`"),
    ],
)
def test_a_loss_that_is_not_there_is_refused(section: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        losses.parse(section)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", losses.NAMES)
class TestContract:
    def test_its_name_is_its_files(self, name: str) -> None:
        options = losses.parse({"loss": name})
        assert options.loss == name
        assert type(options)().loss == name

    def test_options_out_of_range_are_refused(self, name: str) -> None:
        faults = bounds(name)
        options = set(type(losses.parse({"loss": name})).model_fields) - {"loss"}
        assert sorted(key for key, _ in faults) == sorted([*options, *options])  # from below and from above
        for key, value in faults:
            with pytest.raises(ConfigError, match=rf"^distill\.losses\.{key}: got {value}; "):
                losses.parse({"loss": name, key: value})

    def test_every_option_is_described(self, name: str) -> None:
        fields = type(losses.parse({"loss": name})).model_fields
        assert all(field.description for key, field in fields.items() if key != "loss")

    def test_an_unknown_option_is_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match='temprature: unknown key, did you mean "temperature"'):
            losses.parse({"loss": name, "temprature": 2.0})

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("scales", [(1e4, 1e4), (1e4, 1.0), (1.0, 1e4), (0.0, 1.0), (1.0, 0.0)])
    def test_is_finite_with_finite_gradients_for_wild_and_for_flat_logits(
        self, name: str, scales: tuple[float, float], dtype: torch.dtype
    ) -> None:
        student, teacher = outputs(0, scales[0], dtype), outputs(1, scales[1], dtype)
        student.logits.requires_grad_()
        value = compute(name, student, teacher)
        value.backward()
        assert value.shape == ()
        assert torch.isfinite(value)
        assert torch.isfinite(student.logits.grad).all()
        assert student.logits.grad.abs().max() < 1e3

    def test_teaches_every_logit_of_the_student_and_changes_no_input(self, name: str) -> None:
        student, teacher = outputs(0), outputs(1)
        student.logits.requires_grad_()
        compute(name, student, teacher).backward()
        assert (student.logits.grad != 0).all()
        assert torch.equal(student.logits, outputs(0).logits)
        assert torch.equal(teacher.logits, outputs(1).logits)
        assert not teacher.logits.requires_grad

    def test_gets_smaller_towards_the_teacher(self, name: str) -> None:
        student, teacher = outputs(0), outputs(1)
        far, near = (
            compute(name, Outputs(student.logits.lerp(teacher.logits, step), student.features), teacher)
            for step in (0.0, 0.9)
        )
        assert near < far

    def test_the_teacher_matters(self, name: str) -> None:
        assert not torch.isclose(compute(name, outputs(0), outputs(1)), compute(name, outputs(0), outputs(2)))

    def test_the_labels_matter(self, name: str) -> None:
        bound = losses.function(losses.parse({"loss": name}))
        student, teacher = outputs(0), outputs(1)
        assert not torch.isclose(bound(student, teacher, LABELS), bound(student, teacher, (LABELS + 1) % 4))

    def test_the_order_of_the_samples_does_not(self, name: str) -> None:
        student, teacher = outputs(0), outputs(1)
        turned = [Outputs(each.logits.flip(0), tuple(x.flip(0) for x in each.features)) for each in (student, teacher)]
        bound = losses.function(losses.parse({"loss": name}))
        assert torch.isclose(bound(student, teacher, LABELS), bound(*turned, LABELS.flip(0)))

    def test_two_classes_are_enough(self, name: str) -> None:
        student, teacher = (Outputs(each.logits[:, :2], each.features) for each in (outputs(0), outputs(1)))
        value = losses.function(losses.parse({"loss": name}))(student, teacher, LABELS % 2)
        assert torch.isfinite(value)

    def test_one_sample_is_enough(self, name: str) -> None:
        student, teacher = (
            Outputs(each.logits[:1], tuple(x[:1] for x in each.features)) for each in (outputs(0), outputs(1))
        )
        assert torch.isfinite(losses.function(losses.parse({"loss": name}))(student, teacher, LABELS[:1]))

    def test_labels_of_one_sample_alone_count_the_same_as_shares(self, name: str) -> None:
        """Mixed samples have the shares of their labels (N, classes)."""
        bound = losses.function(losses.parse({"loss": name}))
        student, teacher = outputs(0), outputs(1)
        shares = torch.eye(4, dtype=torch.float64)[LABELS]
        assert torch.isclose(bound(student, teacher, shares), bound(student, teacher, LABELS), rtol=1e-6)

    def test_the_loss_of_mixed_labels_is_mixed_by_their_shares(self, name: str) -> None:
        """As Zhang et al. 2018 minimise it: share * loss(one) + (1 - share) * loss(other)."""
        bound = losses.function(losses.parse({"loss": name}))
        student, teacher, others = outputs(0), outputs(1), (LABELS + 1) % 4
        one, other = (torch.eye(4, dtype=torch.float64)[labels] for labels in (LABELS, others))
        expected = 0.3 * bound(student, teacher, LABELS) + 0.7 * bound(student, teacher, others)
        assert torch.isclose(bound(student, teacher, 0.3 * one + 0.7 * other), expected, rtol=1e-6)

    @pytest.mark.parametrize("soft", [False, True])
    def test_smoothing_changes_the_label_term_alone(self, name: str, soft: bool) -> None:
        options = losses.parse({"loss": name})
        student, teacher = outputs(0), outputs(1)
        labels = torch.eye(4, dtype=torch.float64)[LABELS] * 0.7 + 0.075 if soft else LABELS
        plain, smooth = (losses.function(options, label_smoothing=s)(student, teacher, labels) for s in (0.0, 0.2))
        hard, smoothed = (losses.label_loss("classification", s)(student.logits, labels) for s in (0.0, 0.2))
        weight = 1 - options.alpha if name in ("hints", "soft_targets") else 1
        assert smooth != plain
        assert float(smooth - plain) == pytest.approx(float(weight * (smoothed - hard)))
