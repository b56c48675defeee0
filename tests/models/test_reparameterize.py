"""A network's branches are merged into what computes the same, and what is saved is the merged network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.models import store
from edgekit.models.ds_cnn import ds_cnn
from edgekit.models.reparameterize import deployed, merge, reparameterized
from edgekit.models.repvgg import RepVGGBlock, repvgg

SHAPE = (3, 32, 32)
INPUTS = torch.rand(8, *SHAPE, generator=torch.Generator().manual_seed(1))


def spec_of(builder: str, **kwargs: object) -> store.ModelSpec:
    return store.ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=SHAPE,
        num_classes=4,
        classes=tuple("abcd"),
        raw={"kind": "image", "shape": [32, 32, 3], "dtype": "uint8"},
    )


SPEC = spec_of("edgekit.models.repvgg:repvgg", alpha=0.125, top=0.125)


def trained() -> nn.Module:
    """With statistics, scales and shifts that are not those of a fresh network."""
    module = store.build(SPEC, seed=3).train()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight.uniform_(0.5, 1.5, generator=generator)
                part.bias.uniform_(-0.5, 0.5, generator=generator)
        for _ in range(5):
            module(3 * torch.rand(16, *SHAPE, generator=generator))
    return module.eval()


def answers(module: nn.Module) -> np.ndarray:
    with torch.inference_mode():
        found: np.ndarray = module(INPUTS).numpy()
    return found


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(4, 4, 1), (4, 6, 1), (4, 4, 2)])
def test_a_block_becomes_one_convolution_that_is_equal_to_float32_rounding(
    inputs: int, outputs: int, stride: int
) -> None:
    block = RepVGGBlock(inputs, outputs, stride).train()
    x = torch.randn(16, inputs, 9, 9, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for _ in range(3):
            block(2 * x + 1)
        block.eval()
        made = block.merged()
        assert torch.allclose(made(x), block(x), rtol=1e-5, atol=1e-5)
    assert [type(part) for part in made.children()] == [nn.Conv2d, nn.ReLU]


def test_the_merged_network_answers_alike_and_has_one_convolution_for_each_block() -> None:
    module = trained()
    made = reparameterized(module)
    before, after = answers(module), answers(made)
    assert np.abs(after - before).max() < 1e-5 * np.abs(before).max()
    convolutions = [part for part in made.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == 1 + 1 + 2 + 4 + 1
    assert all(part.kernel_size == (3, 3) for part in convolutions)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in made.modules())
    assert any(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_a_merged_network_is_not_merged_again() -> None:
    made, spec, _ = merge(trained(), SPEC, INPUTS)
    assert deployed(made, spec) is made
    assert np.array_equal(answers(reparameterized(made)), answers(made))


def test_what_was_measured_is_told() -> None:
    module = trained()
    made, spec, found = merge(module, SPEC, INPUTS)
    assert found is not None and found.samples == len(INPUTS)
    assert found.max_abs == np.abs(answers(made) - answers(module)).max()
    assert found.largest == np.abs(answers(module)).max()
    assert found.parameters == sum(each.numel() for each in made.parameters()) < found.parameters_before
    assert spec.reparameterized
    assert merge(made, spec, INPUTS) == (made, spec, None)


def test_a_merged_network_is_saved_and_built_again_to_the_bit(tmp_path: Path) -> None:
    made, spec, _ = merge(trained(), SPEC, INPUTS)
    store.save(tmp_path, made, spec)
    loaded, read = store.load(tmp_path)
    assert read == spec
    assert np.array_equal(answers(loaded), answers(made))


def test_networks_without_branches_stay_as_they_are_and_their_record_says_nothing(tmp_path: Path) -> None:
    module, spec = (
        ds_cnn(SHAPE, 4, width=8, blocks=1).eval(),
        spec_of("edgekit.models.ds_cnn:ds_cnn", width=8, blocks=1),
    )
    assert reparameterized(module) is module
    assert merge(module, spec, INPUTS) == (module, spec, None)
    store.save(tmp_path, module, spec)
    assert "reparameterized" not in (tmp_path / "model.json").read_text()


class Wrong(nn.Module):
    """Whose method returns another network."""

    def __init__(self) -> None:
        super().__init__()
        self.network = ds_cnn(SHAPE, 4, width=8, blocks=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(x)
        return found

    def reparameterized(self) -> nn.Module:
        return ds_cnn(SHAPE, 4, width=8, blocks=1)


def test_a_method_that_changes_the_network_is_refused() -> None:
    with pytest.raises(ModelError, match=r"reparameterized\(\) moved the outputs by .* mend it"):
        merge(Wrong(), spec_of("tests.models.test_reparameterize:Wrong"), INPUTS)


def test_gradients_of_a_network_in_training_are_not_touched() -> None:
    module = repvgg(SHAPE, 4, alpha=0.125, top=0.125)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    reparameterized(module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
