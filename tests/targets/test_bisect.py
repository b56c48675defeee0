"""The layer where a file diverges from its network, from the tensors of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from convert_runs import spec_of

from edgekit.core.errors import ConversionError
from edgekit.models import store
from edgekit.models.spec import ModelSpec
from edgekit.runner import input_path
from edgekit.targets import tensors
from edgekit.targets.jobs import ConvertedFiles
from edgekit.targets.locate import bisect, first_divergence
from edgekit.targets.locate.bisect import record_tensors
from edgekit.targets.openvino import convert
from tests import requirements

INPUTS = np.random.default_rng(0).normal(size=(6, 3, 8, 8)).astype(np.float32)


def network(change: Any = None) -> torch.nn.Module:
    """The tiny one with batch norms that do something."""
    module = store.build(spec_of("tiny"), seed=1)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for norm in (module.stem[1], module.deep[1]):
            norm.running_var.uniform_(0.5, 2, generator=random)
            norm.running_mean.uniform_(-0.5, 0.5, generator=random)
        if change:
            change(module)
    return module


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ConvertedFiles]:
    home = tmp_path_factory.mktemp("bisect")
    store.save(home / "model", network(), spec_of("tiny"))
    return home, convert.convert(home / "model", "fp32", None, home / "file")


def test_the_network_is_recorded_in_the_order_of_execution() -> None:
    nodes = record_tensors(network(), INPUTS)
    layers = list(dict.fromkeys(node.layer for node in nodes[1:]))
    assert layers == ["stem.0", "stem.1", "stem.2", "deep.0", "deep.1", "deep.2", "pool", "forward (view)", "head"]
    assert nodes[0].values is INPUTS or np.array_equal(nodes[0].values, INPUTS)
    with torch.no_grad():
        assert np.array_equal(nodes[-1].values, network()(torch.from_numpy(INPUTS)).numpy())


def test_what_gives_several_tensors_is_recorded_with_all_of_them() -> None:
    class Halves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = x.chunk(2, dim=1)
            return first + 2 * second

    nodes = record_tensors(Halves(), np.ones((2, 4), np.float32))
    halves = [place for place, node in enumerate(nodes) if node.operator.startswith("split")]
    assert len(halves) == 2
    assert {taken for node in nodes for taken in node.inputs} >= set(halves)


def test_a_tensor_that_does_not_begin_with_the_samples_is_no_counterpart() -> None:
    """As in attention, whose matrices stand one behind the other."""
    nodes = record_tensors(torch.nn.Flatten(0, 1), np.ones((2, 3, 4), np.float32))
    operator = tensors.FileTensor("x", "Reshape", (0,), np.ones((2, 4), np.float32))
    assert tensors.match_operators(nodes[1:], [operator])[0].similarity == tensors.NO_SIMILARITY


def test_a_correct_file_diverges_nowhere(converted: Any) -> None:
    home, files = converted
    assert (
        first_divergence.find(home / "model", "openvino", home / "file", files, INPUTS, "fp32").message
        == first_divergence.NOWHERE
    )


@pytest.mark.parametrize(
    ("change", "layer", "agreed"),
    [
        (lambda net: net.stem[0].weight.mul_(1.5), "stem.0", "the input"),
        (lambda net: net.deep[0].weight.copy_(net.deep[0].weight.flip(2)), "deep.0", "stem.2"),
        (lambda net: net.deep[1].running_mean.add_(1.0), "deep.0", "stem.2"),
        (lambda net: net.head.bias.add_(2.0), "head", "pool"),
    ],
)
def test_the_layer_is_named(converted: Any, change: Any, layer: str, agreed: str) -> None:
    home, files = converted
    operators = tensors.read("openvino", home / "file", files, INPUTS)
    found = bisect.find_divergence(network(change), INPUTS, operators, "fp32")
    assert found is not None and (found.layer, found.agreed) == (layer, agreed)
    assert found.before.snr_db > 100 > 40 > found.after.snr_db
    assert f"agree up to {agreed} (cosine 1" in found.describe() and f"diverge at {layer} (cosine " in found.describe()


def test_an_activation_that_the_file_has_and_the_network_lacks(converted: Any) -> None:
    home, files = converted
    module = network()
    module.deep[2] = torch.nn.LeakyReLU(0.5)
    operators = tensors.read("openvino", home / "file", files, INPUTS)
    found = bisect.find_divergence(module, INPUTS, operators, "fp32")
    assert found is not None and (found.layer, found.layers, found.operator) == ("deep.2", ("deep.2",), "Relu")


TOKENS, IDS = 12, 30


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_is_made_of_token_ids_has_its_counterpart(precision: str, tmp_path: Path) -> None:
    """A mask is whole numbers on its way, and in both what comes out of it has its place."""
    steps = input_path.text_steps("tokenizer.json", TOKENS, 0)
    spec = ModelSpec(
        builder="edgekit.models.text_transformer:text_transformer", kwargs={"width": 8, "layers": 1, "heads": 2},
        input_shape=(TOKENS,), num_classes=2, classes=("ham", "spam"),
        raw={"kind": "text", "shape": [TOKENS], "dtype": "int32", "range": [0, IDS - 1], "input_path": steps},
    )  # fmt: skip
    module = store.build(spec, seed=1)
    store.save(tmp_path / "model", module, spec)
    ids = np.random.default_rng(0).integers(1, IDS, (16, TOKENS)).astype(np.int32)
    ids[np.arange(16)[:, None] % 9 + 3 < np.arange(TOKENS)] = 0
    files = convert.convert(tmp_path / "model", precision, ids, tmp_path / "file")
    nodes, operators = record_tensors(module, ids), tensors.read("openvino", tmp_path / "file", files, ids)
    mask = (ids != 0).astype(np.float32)
    for each in (nodes, operators):
        places = [place for place, one in enumerate(each) if np.array_equal(one.values, mask)]  # type: ignore[arg-type]
        assert places and each[places[0]].inputs == (0,)  # type: ignore[index]
        assert all(taken < place for place, one in enumerate(each) for taken in one.inputs)  # type: ignore[arg-type]
    if precision == "int8":
        requirements.processor("vnni", why="OpenVINO's int8 dense layers sum in 16 bits without it: 22 dB are lost")
    assert bisect.find_divergence(module, ids, operators, precision, 20.0) is None
    with torch.no_grad():
        module.layers[0].attention.value.bias.add_(3.0)  # type: ignore[union-attr,index]
    found = bisect.find_divergence(module, ids, operators, precision, 20.0)
    assert found is not None and found.layer.startswith("layers.0.attention"), found


def test_a_file_that_cannot_be_read_is_an_error(converted: Any, tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_text("<net")
    with pytest.raises(ConversionError, match="inner tensors of"):
        tensors.read("openvino", tmp_path, converted[1], INPUTS)


def test_cosines_of_silence() -> None:
    one, silent = np.ones((2, 3)), np.zeros((2, 3))
    assert tensors.cosines(one, -one).tolist() == [-1, -1]
    assert tensors.cosines(silent, silent).tolist() == [1, 1]
    assert tensors.cosines(one, silent).tolist() == [0, 0]
