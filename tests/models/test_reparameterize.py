"""A network's branches are merged into what computes the same, and what is saved is the merged network."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgekit import data
from edgekit.core.errors import ModelError
from edgekit.models import dry_run, store
from edgekit.models.ds_cnn import ds_cnn
from edgekit.models.from_artifact import spec_for
from edgekit.models.reparameterize import deployment_network, merge_and_compare, merge_branches
from edgekit.models.repvgg import RepVGGBlock, repvgg
from edgekit.models.several_inputs import export_inputs
from tests import joint_data

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
    made = merge_branches(module)
    before, after = answers(module), answers(made)
    assert np.abs(after - before).max() < 1e-5 * np.abs(before).max()
    convolutions = [part for part in made.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == 1 + 1 + 2 + 4 + 1
    assert all(part.kernel_size == (3, 3) for part in convolutions)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in made.modules())
    assert any(isinstance(part, nn.BatchNorm2d) for part in module.modules())


def test_a_merged_network_is_not_merged_again() -> None:
    made, spec, _ = merge_and_compare(trained(), SPEC, INPUTS)
    assert deployment_network(made, spec) is made
    assert np.array_equal(answers(merge_branches(made)), answers(made))


def test_the_measured_differences_are_recorded() -> None:
    module = trained()
    made, spec, found = merge_and_compare(module, SPEC, INPUTS)
    assert found is not None and found.samples == len(INPUTS)
    assert found.max_abs_difference == np.abs(answers(made) - answers(module)).max()
    assert found.max_abs_output == np.abs(answers(module)).max()
    assert found.parameters == sum(each.numel() for each in made.parameters()) < found.parameters_before
    assert spec.reparameterized
    assert merge_and_compare(made, spec, INPUTS) == (made, spec, None)


def test_a_merged_network_is_saved_and_built_again_to_the_bit(tmp_path: Path) -> None:
    made, spec, _ = merge_and_compare(trained(), SPEC, INPUTS)
    store.save(tmp_path, made, spec)
    loaded, read = store.load(tmp_path)
    assert read == spec
    assert np.array_equal(answers(loaded), answers(made))


def test_networks_without_branches_stay_as_they_are_and_their_record_says_nothing(tmp_path: Path) -> None:
    module, spec = (
        ds_cnn(SHAPE, 4, width=8, blocks=1).eval(),
        spec_of("edgekit.models.ds_cnn:ds_cnn", width=8, blocks=1),
    )
    assert merge_branches(module) is module
    assert merge_and_compare(module, spec, INPUTS) == (module, spec, None)
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
    with pytest.raises(ModelError, match=r"reparameterized\(\) changed the outputs by .* fix the method"):
        merge_and_compare(Wrong(), spec_of("tests.models.test_reparameterize:Wrong"), INPUTS)


class InPlace(Wrong):
    """Whose method changes the module itself, to another network."""

    def reparameterized(self) -> nn.Module:
        self.network = super().reparameterized()
        return self


class Raising(Wrong):
    """Whose method cannot be called."""

    def reparameterized(self) -> nn.Module:
        raise KeyError("branch")


class Nothing(Wrong):
    """Whose method changes the module and returns nothing."""

    def reparameterized(self) -> nn.Module:
        return None  # type: ignore[return-value]


class Narrower(Wrong):
    """Whose merged network has one answer fewer."""

    def reparameterized(self) -> nn.Module:
        return ds_cnn(SHAPE, 1, width=8, blocks=1)


REFUSED = [
    (InPlace, r"reparameterized\(\) changed the outputs by .* fix the method"),
    (Raising, r"Raising.reparameterized\(\): fails: KeyError: there is no 'branch'"),
    (Nothing, r"Nothing.reparameterized\(\): must return a torch.nn.Module, returned NoneType"),
    (Narrower, r"reparameterized\(\) gives outputs of shape \(8, 1\), expected \(8, 4\)"),
]


@pytest.mark.parametrize(("builder", "message"), REFUSED)
def test_a_method_that_is_wrong_otherwise_is_refused_in_a_sentence(builder: type[Wrong], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        merge_and_compare(builder(), spec_of(f"tests.models.test_reparameterize:{builder.__name__}"), INPUTS)


def test_a_wrong_method_is_refused_before_the_training() -> None:
    module = InPlace().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with pytest.raises(ModelError, match="fix the method"):
        dry_run.check_network(module, spec_of("tests.models.test_reparameterize:InPlace"), INPUTS, trains=True)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    dry_run.check_network(repvgg(SHAPE, 4, alpha=0.125, top=0.125).eval(), SPEC, INPUTS, trains=True)


class Branches(joint_data.Network):
    """Of several inputs; its two branches for the sensors are one layer afterwards."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, 8)
        self.also: nn.Module = nn.Linear(5, 8)

    def forward(self, sensors: torch.Tensor, picture: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        read = self.read(sensors) + (self.also(sensors) if isinstance(self.also, nn.Linear) else 0)
        seen = [self.look(picture / 255), torch.relu(read), self.words(ids).mean(1)]
        found: torch.Tensor = self.decide(torch.cat(seen, 1))
        return found

    def reparameterized(self) -> nn.Module:
        made = copy.deepcopy(self)
        made.read.weight += self.also.weight  # type: ignore[operator]
        made.read.bias += self.also.bias  # type: ignore[operator]
        made.also = nn.Identity()
        return made


def branches(num_classes: int, input_shapes: dict[str, tuple[int, ...]]) -> nn.Module:
    return Branches(num_classes)


def test_a_network_of_several_inputs_is_merged_too(tmp_path: Path) -> None:
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    found = data.load(data.parse(section, "classification"))
    spec = spec_for(found, "tests.models.test_reparameterize:branches", {}, [])
    module, x = store.build(spec, seed=1), torch.from_numpy(found.validation.x[:8].copy())
    made, merged, record = merge_and_compare(module, spec, x)
    assert record is not None and record.parameters_before - record.parameters == 6 * 8
    store.save(tmp_path, made, merged)
    loaded, read = store.load(tmp_path)
    with torch.no_grad():
        assert read.reparameterized and torch.equal(loaded(x), made(x))
        assert torch.allclose(made(x), module(x), atol=1e-5)
    assert export_inputs(loaded, store.zero_sample(merged)).names == ("sensors", "picture", "ids")


def test_gradients_of_a_network_in_training_are_not_touched() -> None:
    module = repvgg(SHAPE, 4, alpha=0.125, top=0.125)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    merge_branches(module)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
