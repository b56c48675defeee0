"""A layer is found again by its weights, whatever a conversion did to its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from convert_runs import spec_of

from edgekit.core.errors import ConversionError
from edgekit.models import store
from edgekit.targets import layers
from edgekit.targets.ranges import OUTSIDE, Tails


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("layers") / "model"
    spec = spec_of("tiny")
    store.save(made, store.build(spec, seed=1), spec)
    return made


@pytest.mark.parametrize(("name", "message"), [("stem.9", "no such module"), ("pool", "no weights")])
def test_a_name_that_means_no_layer_is_refused(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConversionError, match=rf"keep_float: got '{name}', .*{message}"):
        layers.read_layers(folder, [name])


def test_folding_and_layout_do_not_hide_a_layer(folder: Path) -> None:
    [layer] = layers.read_layers(folder, ["stem.0"])
    [weight] = layer.weights
    random = np.random.default_rng(0)
    folded = weight * random.uniform(-2, 2, (len(weight), 1)).astype(np.float32)
    constants = {"other": random.normal(size=weight.shape), "folded": folded[:, random.permutation(weight.shape[1])]}
    assert layers.matching_operators([layer], constants, "onnx") == ["folded"]


def test_a_module_of_several_layers_keeps_them_all(folder: Path) -> None:
    [whole] = layers.read_layers(folder, ["stem"])
    assert len(whole.weights) == 1
    [everything] = layers.read_layers(folder, [""])
    constants = {str(place): weight for place, weight in enumerate(everything.weights)}
    assert layers.matching_operators([everything], constants, "onnx") == ["0", "1", "2"]


def test_a_layer_that_the_conversion_lost_is_named(folder: Path) -> None:
    [layer] = layers.read_layers(folder, ["head"])
    with pytest.raises(ConversionError, match=r"openvino has no operator with the weights of 'head'"):
        layers.matching_operators([layer], {"other": layer.weights[0] + 1}, "openvino")


def test_dead_channels_say_nothing(folder: Path) -> None:
    [layer] = layers.read_layers(folder, ["head"])
    [weight] = layer.weights
    half = weight.copy()
    half[0] = 0
    assert layers.matching_operators([layer], {"half": half}, "tflite") == ["half"]
    with pytest.raises(ConversionError):
        layers.matching_operators([layer], {"none": np.zeros_like(weight)}, "tflite")


def test_tails_are_those_of_all_values_at_once() -> None:
    values = np.random.default_rng(0).normal(size=(50, 100)).astype(np.float32)
    tails = Tails(values.size)
    for row in values:
        tails.add(row)
    low, high = tails.bounds()
    ordered = np.sort(values.ravel())
    outside = int(OUTSIDE * (values.size - 1))
    assert outside == 4 and (low, high) == (ordered[outside], ordered[-1 - outside])
