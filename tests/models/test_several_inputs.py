"""A network of several inputs, seen as one of a single vector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from edgekit import data
from edgekit.core.errors import ModelError
from edgekit.models import joint, store
from edgekit.models.from_artifact import spec_for
from edgekit.models.several_inputs import export_inputs
from tests import joint_data

BUILDER = "tests.joint_data:network"


@pytest.fixture(scope="module")
def dataset() -> data.Data:
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    return data.load(data.parse(section, "classification"))


@pytest.fixture
def spec(dataset: data.Data) -> store.ModelSpec:
    return spec_for(dataset, BUILDER, {}, [])


def test_it_gets_each_tensor_by_its_name_whatever_its_own_order(dataset: data.Data, spec: store.ModelSpec) -> None:
    module = store.build(spec)
    x = torch.from_numpy(dataset.validation.x[:8])
    picture, sensors, ids = x[:, :64].reshape(8, 1, 8, 8), x[:, 64:69], x[:, 69:].to(torch.int32)
    network: Any = module.network
    with torch.no_grad():
        assert torch.equal(module(x), network(sensors, picture, ids))


def test_what_is_exported_is_the_network_itself(spec: store.ModelSpec) -> None:
    module = store.build(spec)
    network, arguments, names = export_inputs(module, store.zero_sample(spec))
    assert isinstance(network, joint_data.Network) and names == ("sensors", "picture", "ids")
    assert [tuple(each.shape) for each in arguments] == [(1, 5), (1, 1, 8, 8), (1, 4)]
    assert arguments[2].dtype == torch.int32
    other = nn.Linear(2, 2)
    assert export_inputs(other, torch.zeros(1, 2)).network is other


def test_it_is_saved_and_opened_again(dataset: data.Data, spec: store.ModelSpec, tmp_path: Path) -> None:
    module = store.build(spec, seed=3)
    store.save(tmp_path, module, spec)
    again, read = store.load(tmp_path)
    x = torch.from_numpy(dataset.validation.x[:4])
    with torch.no_grad():
        assert read == spec and torch.equal(module(x), again(x))


def test_the_users_weights_have_the_names_of_the_users_network(spec: store.ModelSpec, tmp_path: Path) -> None:
    own = joint_data.Network(3, 8)
    save_file(own.state_dict(), tmp_path / "mine.safetensors")
    module = store.build(spec)
    store.load_weights(module, tmp_path / "mine.safetensors")
    assert torch.equal(module.get_parameter("network.decide.weight"), own.decide.weight)


class Other(nn.Module):
    def forward(self, picture: Tensor, words: Tensor) -> Tensor:
        return picture


def other(num_classes: int) -> nn.Module:
    """Its forward takes what the data have not."""
    return Other()


def test_other_names_are_the_users_error(dataset: data.Data) -> None:
    spec = spec_for(dataset, f"{__name__}:other", {}, [])
    with pytest.raises(ModelError, match="takes picture, words, but the data have the tensors picture, sensors, ids"):
        store.build(spec)


def pair(cls: type[nn.Module]) -> store.ModelSpec:
    """Of two tensors, `a` and `b`, for a network of this class."""
    tensors = [{"name": name, "shape": [3], "dtype": "float32", "range": None} for name in "ab"]
    raw = {"kind": "tensors", "shape": [6], "dtype": "float32", "range": None, "tensors": tensors}
    return store.ModelSpec(
        builder=f"{__name__}:{cls.__name__.lower()}",
        kwargs={},
        input_shape=(6,),
        num_classes=3,
        classes=("x", "y", "z"),
        preprocess=[],
        raw=raw,
        task="classification",
    )


class Later(nn.Module):
    def forward(self, a: Tensor, scale: Tensor | None = None, b: Tensor | None = None) -> Tensor:
        assert b is not None
        return a - b


class Keyword(nn.Module):
    def forward(self, a: Tensor, *, b: Tensor) -> Tensor:
        return a - b


class Gap(nn.Module):
    def forward(self, a: Tensor, scale: float = 1.0, *others: Tensor) -> Tensor:
        return a - others[0]


class Options(nn.Module):
    def forward(self, b: Tensor, a: Tensor, scale: float = 1.0, **more: Any) -> Tensor:
        return a * scale - b


class Others(nn.Module):
    def forward(self, b: Tensor, *others: Tensor) -> Tensor:
        return others[0] - b


def later() -> nn.Module:
    return Later()


def keyword() -> nn.Module:
    return Keyword()


def gap() -> nn.Module:
    return Gap()


def options() -> nn.Module:
    return Options()


def others() -> nn.Module:
    return Others()


@pytest.mark.parametrize("cls", [Later, Keyword, Gap])
def test_a_tensor_that_cannot_be_given_by_its_place_is_the_users_error(cls: type[nn.Module]) -> None:
    """Given by place, it would be taken for the argument that stands there."""
    with pytest.raises(ModelError, match="takes b after other arguments, .*; let the data's tensors come first: a, b"):
        store.build(pair(cls))


@pytest.mark.parametrize("cls", [Options, Others])
def test_further_arguments_that_may_be_left_out_do_no_harm(cls: type[nn.Module]) -> None:
    module = store.build(pair(cls))
    x = torch.arange(12.0).reshape(2, 6) ** 2
    assert torch.equal(module(x), x[:, :3] - x[:, 3:])


class Careless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(4, 3)

    def forward(self, picture: Tensor, sensors: Tensor, ids: Tensor) -> Tensor:
        scores: Tensor = self.dense(ids)
        return scores


def careless(num_classes: int) -> nn.Module:
    """It takes whole numbers for floats."""
    return Careless()


def test_whole_numbers_where_floats_are_needed_are_explained(dataset: data.Data) -> None:
    with pytest.raises(ModelError, match=r"whole numbers comes as int32; take x.float\(\)"):
        store.build(spec_for(dataset, f"{__name__}:careless", {}, []))


def test_the_reference_network_has_a_branch_for_each(dataset: data.Data) -> None:
    spec = spec_for(dataset, "edgekit.models.joint:joint", {"width": 4}, [])
    module: Any = store.build(spec)
    kinds = [type(branch).__name__ for branch in module.network.branches]
    assert kinds == ["ImageBranch", "NumbersBranch", "IdsBranch"]
    assert module.network.branches[2].vectors.num_embeddings == 10
    with torch.no_grad():
        assert module(torch.from_numpy(dataset.validation.x[:5])).shape == (5, 3)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ((3, 8, 8), "ImageBranch"),
        ((8, 8, 3), "ImageBranch"),
        ((12, 2), "WindowBranch"),
        ((7,), "NumbersBranch"),
        ((4, 5, 6), "NumbersBranch"),
    ],
)
def test_a_branch_is_chosen_by_shape(shape: tuple[int, ...], kind: str) -> None:
    module: Any = joint.joint({"a": shape, "b": (2,)}, 4, width=6)
    assert type(module.branches[0]).__name__ == kind
    assert module.eval()(torch.randn(3, *shape), torch.randn(3, 2)).shape == (3, 4)


def test_large_whole_numbers_are_no_names() -> None:
    module: Any = joint.joint({"a": (2,), "b": (2,)}, 2, {"a": 10, "b": 2**24}, 4)
    assert [type(branch).__name__ for branch in module.branches] == ["IdsBranch", "NumbersBranch"]
    assert module.eval()(torch.zeros(1, 2).int(), torch.full((1, 2), 2**23).int()).shape == (1, 2)


def test_a_width_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="width >= 1, got 0"):
        joint.joint({"a": (2,), "b": (2,)}, 2, width=0)


def test_the_error_for_a_builder_of_one_input_says_to_take_several(dataset: data.Data) -> None:
    with pytest.raises(
        ModelError, match="needs input_shape, but the samples are several tensors; let it take input_sh"
    ):
        store.build(spec_for(dataset, "edgekit.models.mlp:mlp", {}, []))
