"""A network with states as one step for every target: fed back, it gives what the whole sequence gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edgekit.core.errors import ConversionError, ModelError
from edgekit.models.streaming_conv import streaming_conv
from edgekit.runner.backends import interpreters_for, open_backend
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.targets import step

CLASSES, CHANNELS, TIME = 3, 4, 2
"""Moments of a step."""
MOMENTS = 40
TOLERANCE = 1e-4
"""Of the range of the offline answers: what every interpreter keeps to over the whole sequence."""


class GruStep(nn.Module):
    """Two layers; the logits of the last moment."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(CHANNELS, 12, 2, batch_first=True)
        self.head = nn.Linear(12, CLASSES)
        self.states = {"hidden": (2, 1, 12)}

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        found, after = self.gru(x, hidden)
        return self.head(found[:, -1]), after

    def offline(self, x: Tensor) -> Tensor:
        """The logits of every moment of whole sequences, from zeros on."""
        found: Tensor = self.head(self.gru(x)[0])
        return found


class LstmStep(nn.Module):
    """Two states, and a picture in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, stride=2)
        self.cell = nn.LSTMCell(4 * 9, 8)
        self.head = nn.Linear(8, CLASSES)
        self.states = {"hidden": (1, 8), "cell_state": (1, 8)}

    def forward(self, x: Tensor, hidden: Tensor, cell_state: Tensor) -> tuple[Tensor, ...]:
        features = torch.relu(self.conv(x)).flatten(1)
        hidden, cell_state = self.cell(features, (hidden, cell_state))
        return self.head(hidden), hidden, cell_state


def sequence() -> np.ndarray:
    return np.random.default_rng(4).normal(0, 1, (1, MOMENTS, CHANNELS)).astype(np.float32)


def networks() -> dict[str, tuple[nn.Module, np.ndarray]]:
    """Each step, and the offline answers (steps, classes): those of the whole sequence behind each step."""
    torch.manual_seed(0)
    x, ends = torch.from_numpy(sequence()), range(TIME - 1, MOMENTS, TIME)
    recurrent = GruStep().eval()
    whole = streaming_conv((MOMENTS, CHANNELS), CLASSES, width=8, blocks=3)
    with torch.no_grad():
        for _ in range(3):  # batch norms that have seen something
            whole.train()(torch.randn(16, MOMENTS, CHANNELS))
        whole.eval()
        return {
            "gru": (recurrent, recurrent.offline(x)[0, list(ends)].numpy()),
            "convolutions": (whole.step(), np.concatenate([whole(x[:, : end + 1]).numpy() for end in ends])),
        }


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, np.ndarray, step.NetworkStep]]:
    found = {}
    for name, (network, offline) in networks().items():
        folder = tmp_path_factory.mktemp(name)
        made = step.export(network, (TIME, CHANNELS), folder)
        assert sorted(made) == ["onnx", "openvino", "tflite"]
        found[name] = (folder, offline, step.read_step(network, (TIME, CHANNELS)))
    return found


FILES = {"tflite": ["model.tflite"], "openvino": ["model.xml", "model.bin"], "onnx": ["model.onnx"]}


@pytest.mark.parametrize("target", FILES)
@pytest.mark.parametrize("name", ["gru", "convolutions"])
def test_every_interpreter_gives_the_answers_of_the_whole_sequence(
    name: str, target: str, exported: dict[str, tuple[Path, np.ndarray, step.NetworkStep]]
) -> None:
    folder, offline, made = exported[name]
    files = {each: (folder / each).read_bytes() for each in FILES[target]}
    source = TensorSpec("input", (1, TIME, CHANNELS), "float32", "ANY")
    result = TensorSpec("output", (1, CLASSES), "float32", "NC")
    steps = sequence().reshape(-1, 1, TIME, CHANNELS)
    for interpreter in [each for each in interpreters_for(target) if each != "tflite_runtime"]:
        backend = open_backend(target, files, (source,), (result,), interpreter=interpreter, states=made.specs)
        states, found = backend.zeros(), []
        for x in steps:
            y, states = backend.step(x, states)
            found.append(y[0])
        assert np.abs(np.stack(found) - offline).max() <= TOLERANCE * np.ptp(offline), interpreter


def test_a_pruned_network_steps_as_it_answers(tmp_path: Path) -> None:
    """Saved, and rebuilt from its tensors' shapes, as a run keeps it."""
    import torch_pruning

    from edgekit.models import store

    spec = store.ModelSpec(
        builder="edgekit.models.streaming_conv:streaming_conv", kwargs={"width": 8}, input_shape=(MOMENTS, CHANNELS),
        num_classes=CLASSES, classes=("a", "b", "c"), raw={"kind": "window", "shape": [MOMENTS, CHANNELS],
                                                           "dtype": "float32"},
    )  # fmt: skip
    network = store.build(spec, seed=1)
    torch_pruning.pruner.MagnitudePruner(
        network, torch.zeros(1, MOMENTS, CHANNELS), torch_pruning.importance.MagnitudeImportance(p=2),
        pruning_ratio=0.5, ignored_layers=[network.head],
    ).step()  # fmt: skip
    store.save(tmp_path, network.eval(), spec)
    whole = store.load(tmp_path)[0]
    made = step.read_step(whole.step(), (1, CHANNELS))
    assert [shape[1] for shape in made.states.values()] == [CHANNELS, 4, 4, 4]
    found = step.reference_outputs(made, sequence().reshape(-1, 1, 1, CHANNELS))
    with torch.inference_mode():
        expected = whole(torch.from_numpy(sequence())).numpy()
    np.testing.assert_allclose(found[-1], expected, atol=1e-5)


def test_the_files_name_their_states(exported: dict[str, tuple[Path, np.ndarray, step.NetworkStep]]) -> None:
    import onnx

    folder, _, made = exported["convolutions"]
    graph = onnx.load(folder / "model.onnx").graph
    assert [each.name for each in graph.input] == ["input", "past_0", "past_1", "past_2"]
    assert [each.name for each in graph.output] == ["output", "new_past_0", "new_past_1", "new_past_2"]
    assert made.specs[1].shape == (1, 8, 4)


def test_pictures_enter_a_tflite_file_with_their_channels_last(tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = step.export(LstmStep(), (1, 8, 8), tmp_path, ["tflite"])
    assert list(made) == ["tflite"]
    source = TensorSpec("input", (1, 8, 8, 1), "float32", "NHWC")
    result = TensorSpec("output", (1, CLASSES), "float32", "NC")
    specs = step.read_step(LstmStep(), (1, 8, 8)).specs
    open_backend("tflite", {"model.tflite": made["tflite"].read_bytes()}, (source,), (result,), states=specs)


class Broken(nn.Module):
    """A step that is wrong in the given way."""

    def __init__(self, states: Any, inputs: Any) -> None:
        super().__init__()
        self.states, self.given = states, inputs

    def forward(self, x: Tensor, *states: Tensor) -> Any:
        return self.given(x, *states)


STATE = {"hidden": (1, 4)}


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (nn.Linear(4, 3), "Linear: has no states"),
        (Broken({}, lambda x: x), "Broken: has no states"),
        (Broken({"input": (1, 4)}, lambda x, h: (x, h)), "got the name 'input'"),
        (Broken({"new": (1, 4), "new_new": (1, 4)}, lambda x, a, b: (x, a, b)), "got the name 'new_new'"),
        (Broken({"a state": (1, 4)}, lambda x, h: (x, h)), "got the name 'a state'"),
        (Broken({"h": 5}, lambda x, h: (x, h)), r"Broken.states: h is 5; a shape is a tuple"),
        (Broken({"h": (0, 4)}, lambda x, h: (x, h)), r"Broken.states: h is \(0, 4\); a shape is a tuple"),
        (Broken({"h": (1.0, 4)}, lambda x, h: (x, h)), "a shape is a tuple"),
        (Broken(STATE, lambda x, h: (x, None)), "forward gives NoneType for new_hidden; it must be a tensor"),
        (Broken(STATE, lambda x, h: (None, h)), "forward gives NoneType for output"),
        (Broken(STATE, lambda x, h: x), r"forward gives Tensor; it must give \(y, new_hidden\)"),
        (Broken(STATE, lambda x, h: (x, h, h)), "forward gives 3 values"),
        (Broken(STATE, lambda x, h: (x, h[:, :2])), r"new_hidden is \[1, 2\], but the state is \[1, 4\]"),
        (Broken(STATE, lambda x, h: (x, h.double())), "new_hidden has dtype torch.float64"),
        (Broken(STATE, lambda x, h: (x / 0, h)), "output contains NaN"),
        (Broken(STATE, lambda x, h: (x @ h, h)), "all-zero states: RuntimeError"),
    ],
)
def test_a_network_of_another_form_is_refused(network: nn.Module, message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        step.export(network, (4,), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_unknown_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="targets: got 'onyx'; known: tflite, openvino, onnx"):
        step.export(GruStep(), (TIME, CHANNELS), tmp_path, ["onnx", "onyx"])
    assert not list(tmp_path.iterdir())


class Counting(Broken):
    """What it gives depends on how often it was called, which no file knows."""

    def __init__(self) -> None:
        super().__init__(STATE, None)
        self.calls = 0

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        return x * float(self.calls), hidden * 0.5


def test_a_file_that_is_refused_replaces_none(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"before")
    with pytest.raises(ConversionError, match="onnx: the outputs of 8 steps differ from PyTorch's by"):
        step.export(Counting(), (4,), tmp_path, ["onnx"])
    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("model.onnx", b"before")]


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    network = Broken(STATE, lambda x, h: (x * 1.0, h * 0.5))
    for out in (tmp_path / "taken", tmp_path / "taken/inside"):
        with pytest.raises(ConversionError, match="out: got .*, where a file is; name a folder"):
            step.export(network, (4,), out, ["onnx"])


def test_one_tensor_for_two_ends_of_a_tflite_file_is_refused(tmp_path: Path) -> None:
    network = Broken({"hidden": (1, 3)}, lambda x, h: ((y := x + h), y))
    with pytest.raises(ConversionError, match="output and new_hidden are one tensor|new_hidden and output are"):
        step.export(network, (3,), tmp_path, ["tflite"])
