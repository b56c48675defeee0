"""Building, saving and loading networks, and the error messages if one of these fails."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from edgekit.core.errors import ModelError
from edgekit.models.store import ModelSpec, build, load, load_weights, save

HERE = "networks"


@pytest.fixture(autouse=True)
def _networks_on_the_path(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def image_spec(function: str, builder: str = HERE, **kwargs: object) -> ModelSpec:
    return _spec(f"{builder}:{function}", (1, 32, 32), kwargs)


def vector_spec(function: str, **kwargs: object) -> ModelSpec:
    return _spec(f"{HERE}:{function}", (12,), kwargs)


def _spec(builder: str, input_shape: tuple[int, ...], kwargs: dict[str, object]) -> ModelSpec:
    shape = [32, 32, 1] if len(input_shape) == 3 else list(input_shape)
    return ModelSpec(
        builder=builder,
        kwargs=kwargs,
        input_shape=input_shape,
        num_classes=10,
        classes=tuple("0123456789"),
        raw={"kind": "image" if len(shape) == 3 else "vector", "shape": shape, "dtype": "float32"},
    )


def test_a_users_builder_gets_what_its_signature_takes():
    assert build(vector_spec("perceptron", hidden=5))[0].out_features == 5
    assert build(image_spec("odd", channels=4)).head.in_features == 4
    assert build(vector_spec("anything", hidden=7))[0].in_features == 12


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (image_spec("resnet", builder="no_such_package.nets"), "cannot import no_such_package"),
        (image_spec("resnett", builder="edgekit.models.resnet"), 'did you mean "resnet"'),
        (image_spec("NOT_CALLABLE"), "int, not a function"),
        (image_spec("odd", chanels=4), 'did you mean "channels"'),
        (image_spec("needs_more"), "needs flavour"),
        (image_spec("no_module"), "returned an int"),
        (image_spec("wrong_outputs"), r"\(1, 10\), returned shape \(1, 11\)"),
        (image_spec("two_outputs"), "returned a tuple"),
        (vector_spec("odd"), r"fails on an input of shape \(1, 12\)"),
        (vector_spec("perceptron", hidden="many"), "TypeError"),
    ],
)
def test_what_cannot_be_built_is_explained(spec, message):
    with pytest.raises(ModelError, match=message):
        build(spec)


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    build(vector_spec("perceptron"))
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("spec", [image_spec("odd"), vector_spec("perceptron"), image_spec("tied")])
def test_saved_and_loaded_is_bit_equal(spec, tmp_path):
    module = build(spec, seed=2)
    save(tmp_path, module, spec)
    loaded, _ = load(tmp_path)
    x = torch.randn(2, *spec.input_shape)
    with torch.inference_mode():
        assert torch.equal(module(x), loaded(x))


def test_odd_layers_are_rebuilt_at_their_stored_sizes(tmp_path):
    """The weights of a narrower network under the spec of the wider one: what pruning leaves."""
    narrow = build(image_spec("odd", channels=5))
    save(tmp_path, narrow, image_spec("odd", channels=8))
    loaded, _ = load(tmp_path)
    assert str(loaded) == str(narrow)
    x = torch.randn(2, 1, 32, 32)
    with torch.inference_mode():
        assert torch.equal(narrow(x), loaded(x))


def test_channels_last_does_not_change_what_is_saved(tmp_path):
    spec = image_spec("resnet", builder="edgekit.models.resnet", depth=8, width=4)
    module = build(spec)
    save(tmp_path / "a", module, spec)
    save(tmp_path / "b", module.to(memory_format=torch.channels_last), spec)
    assert (tmp_path / "a/weights.safetensors").read_bytes() == (tmp_path / "b/weights.safetensors").read_bytes()


def test_a_spec_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="10, but 2 classes"):
        ModelSpec.model_validate(image_spec("odd").model_dump() | {"classes": ["a", "b"]})
    with pytest.raises(ValueError, match="needs kind, shape and dtype, and may have range"):
        ModelSpec.model_validate(image_spec("odd").model_dump() | {"raw": {"shape": [1]}})


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1}', '{"format": 99, "builder": "a:b"}', '{"format": "x"}']
)
def test_a_broken_record_is_refused(text, tmp_path):
    spec = vector_spec("perceptron")
    save(tmp_path, build(spec), spec)
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(ModelError, match=r"model\.json"):
        load(tmp_path)


def test_a_newer_format_says_so(tmp_path):
    spec = vector_spec("perceptron")
    save(tmp_path, build(spec), spec)
    fields = json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "model.json").write_text(json.dumps(fields | {"format": 2, "new": True}))
    with pytest.raises(ModelError, match="newer edgekit"):
        load(tmp_path)


def test_missing_and_broken_weights_are_refused(tmp_path):
    spec = vector_spec("perceptron")
    save(tmp_path, build(spec), spec)
    whole = (tmp_path / "weights.safetensors").read_bytes()
    (tmp_path / "weights.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelError, match="not a safetensors file"):
        load(tmp_path)
    (tmp_path / "weights.safetensors").unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        load(tmp_path)


def test_sizes_that_do_not_fit_together_are_refused(tmp_path):
    spec = vector_spec("perceptron")
    module = build(spec)
    module[3] = nn.Linear(9, 10)
    save(tmp_path, module, spec)
    with pytest.raises(ModelError, match="fails on an input"):
        load(tmp_path)


class TestLoadWeights:
    def test_takes_a_users_file(self, tmp_path):
        source, target = build(vector_spec("perceptron"), seed=1), build(vector_spec("perceptron"), seed=2)
        state = {name: value for name, value in source.state_dict().items() if "num_batches" not in name}
        save_file(state, tmp_path / "w.safetensors")
        load_weights(target, tmp_path / "w.safetensors")
        x = torch.randn(3, 12)
        assert np.array_equal(source(x).detach().numpy(), target(x).detach().numpy())

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda state: state.pop("0.weight"), r"missing 0\.weight"),
            (lambda state: state.update(extra=torch.zeros(1)), "unexpected extra"),
            (lambda state: state.update({"3.bias": torch.zeros(4)}), r"3\.bias \(4,\), the network has \(10,\)"),
            (
                lambda state: state.update({"3.bias": torch.full((10,), torch.nan)}),
                r"infinite values in 3\.bias",
            ),
        ],
    )
    def test_lists_what_does_not_fit_and_changes_nothing(self, change, message, tmp_path):
        module = build(vector_spec("perceptron"))
        before = {name: value.clone() for name, value in module.state_dict().items()}
        state = {name: value.clone() + 1 for name, value in before.items()}
        change(state)
        save_file(state, tmp_path / "w.safetensors")
        with pytest.raises(ModelError, match=message):
            load_weights(module, tmp_path / "w.safetensors")
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())

    def test_refuses_a_pickle(self, tmp_path):
        torch.save({}, tmp_path / "w.pt")
        with pytest.raises(ModelError, match="not a safetensors file"):
            load_weights(build(vector_spec("perceptron")), tmp_path / "w.pt")
