"""Training in bfloat16: repeatable, near float32, another key; and what `auto` is on which machine."""

from __future__ import annotations

import pytest
import torch

from edgekit.core.config import TrainingOptions, TrainOptions
from edgekit.core.precision import BFLOAT16_INSTRUCTIONS, resolve_precision
from edgekit.runner import cpu
from edgekit.training.data_parallel.environment import use_processes
from edgekit.training.fit import History, fit
from edgekit.training.losses import hints
from edgekit.training.objective import Distillation
from edgekit.training.torch_settings import computing_in
from tests.training.data_parallel.test_shards import trained
from tests.training.test_fit import SCALE, bars, convolutions, data_of, options, same

BFLOAT16 = TrainingOptions(precision="bfloat16")


def taught(
    training: TrainingOptions, how: TrainOptions | None = None, distillation: Distillation | None = None
) -> tuple[torch.nn.Module, History]:
    module = convolutions()
    history = fit(
        module, data_of(bars, "image", 2), SCALE, how or options(12), seed=0, device="cpu", threads=1,
        training=training, distillation=distillation,
    )  # fmt: skip
    return module, history


def test_bfloat16_learns_and_repeats_itself_and_gives_other_bits_than_float32() -> None:
    (first, history), (again, _), (other, _) = (taught(each) for each in (BFLOAT16, BFLOAT16, TrainingOptions()))
    assert history.best.validation_accuracy > 0.9
    assert same(first, again) and not same(first, other)


def test_what_is_left_is_a_float32_network_without_a_trace_of_the_training() -> None:
    module, _ = taught(BFLOAT16)
    assert {value.dtype for value in module.state_dict().values()} <= {torch.float32, torch.int64}
    assert "forward" not in vars(module)
    with torch.inference_mode():
        assert module.train()(torch.zeros(2, 1, 8, 8)).dtype == torch.float32


def test_a_networks_own_forward_is_put_back() -> None:
    module = torch.nn.Linear(2, 2)
    own = module.forward = lambda x: x + 1  # type: ignore[method-assign]
    with computing_in("bfloat16", module, torch.device("cpu")):
        assert module.forward is not own
    assert module.forward is own


def test_feature_maps_in_bfloat16_are_compared_with_a_teachers_in_float32() -> None:
    """At a rate at which both learn: losses that grow without end differ between processors by powers of ten."""
    losses = []
    for training in (BFLOAT16, TrainingOptions()):
        distillation = Distillation(convolutions(1), hints.Options(weight=1.0))
        history = taught(training, options(12, learning_rate=0.01), distillation=distillation)[1]
        losses.append([epoch.train_loss for epoch in history.epochs])
    assert losses[0] == pytest.approx(losses[1], rel=0.05) and losses[0] != losses[1]
    assert losses[0][-1] < losses[0][0] / 2


@pytest.mark.processes
def test_another_process_computes_its_shares_in_bfloat16_too() -> None:
    networks = []
    for count, precision in ((1, "bfloat16"), (2, "bfloat16"), (1, "float32")):
        network = convolutions()
        how = TrainingOptions(shares=2, precision=precision)  # type: ignore[arg-type]
        with use_processes(count):
            trained(network, data_of(bars, "image", 2), 2, SCALE, options(1), training=how)
        networks.append(network)
    assert same(networks[0], networks[1])
    assert not same(networks[0], networks[2])


@pytest.mark.parametrize(
    ("flags", "device", "expected"),
    [
        (["avx512_bf16"], "cpu", "bfloat16"),
        (["amx_bf16"], "cpu", "bfloat16"),
        (["bf16"], "cpu", "bfloat16"),
        (["avx512f", "avx512_vnni"], "cpu", "float32"),
        ([], "cpu", "float32"),
        (["avx512_bf16"], "mps", "float32"),
    ],
)
def test_auto_is_bfloat16_where_the_processor_multiplies_it(
    flags: list[str], device: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "instruction_sets", lambda: flags)
    assert resolve_precision(TrainingOptions(precision="auto", shares=2), device) == TrainingOptions(
        precision=expected,  # type: ignore[arg-type]
        shares=2,
    )


def test_a_named_precision_is_taken_at_its_word() -> None:
    assert resolve_precision(BFLOAT16, "cpu") is BFLOAT16
    assert set(BFLOAT16_INSTRUCTIONS) <= {*cpu.X86, *cpu.ARM}
