"""Exported PyTorch programs: run as the network they came from, and nothing in them unpickled."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from edgekit.core.errors import ModelError
from edgekit.models.files import exported
from tests.models.files import files


@pytest.fixture
def program(tmp_path: Path) -> Path:
    return files.make("exported", tmp_path)


def rewritten(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    made = path.with_name("changed.pt2")
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(made, "w") as copy:
        for name in archive.namelist():
            copy.writestr(name, change(name, archive.read(name)))
    return made


def test_it_answers_as_its_network(program: Path) -> None:
    """It was exported for a batch of one, and answers many."""
    x = torch.from_numpy(files.samples())
    module = exported.network(program)
    with torch.inference_mode():
        assert torch.allclose(module.eval()(x), files.network()(x), atol=1e-5)
    opened = exported.open(program, 0)
    assert opened.shape == (1, *files.SHAPE)
    assert torch.allclose(torch.from_numpy(opened.for_shape(x.shape)(x.numpy())), files.network()(x), atol=1e-5)


def test_an_open_batch_stays_open(tmp_path: Path) -> None:
    sides = ({0: torch.export.Dim("batch", min=1, max=64)},)
    made = torch.export.export(files.network(), (torch.zeros(2, *files.SHAPE),), dynamic_shapes=sides)
    torch.export.save(made, str(tmp_path / "net.pt2"))
    assert exported.open(tmp_path / "net.pt2", 0).shape == (-1, *files.SHAPE)
    assert exported.network(tmp_path / "net.pt2")(torch.zeros(7, *files.SHAPE)).shape == (7, 10)


def test_what_would_run_code_is_never_unpickled(program: Path, tmp_path: Path) -> None:
    """torch.export.load would unpickle the example inputs, code and all."""
    trap = tmp_path / "sprung"
    pickled = b"cos\nsystem\n(S'touch " + str(trap).encode() + b"'\ntR."
    made = rewritten(program, lambda name, content: pickled if "sample_inputs" in name else content)
    exported.network(made)
    assert not trap.exists()


def changed(path: Path, member: str, change: Callable[[dict[str, Any]], None]) -> Path:
    """The program with one of its JSON members changed."""

    def rewrite(name: str, content: bytes) -> bytes:
        if not name.endswith(member):
            return content
        stored = json.loads(content)
        change(stored)
        return json.dumps(stored).encode()

    return rewritten(path, rewrite)


def refused(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        exported.network(path)
    assert "may run code when it is opened: export the network again" in str(caught.value)
    return str(caught.value)


WEIGHTS, GRAPH = "model_weights_config.json", "models/model.json"


@pytest.mark.usefixtures("no_recursion_limit")
@pytest.mark.parametrize("member", [WEIGHTS, GRAPH])
def test_a_list_of_lists_without_end_is_refused(member: str, program: Path) -> None:
    made = rewritten(program, lambda name, content: b"[" * 200_000 if name.endswith(member) else content)
    with pytest.raises(ModelError, match="changed.pt2: cannot be opened: maximum recursion depth"):
        exported.network(made)


def test_a_pickled_weight_is_refused(program: Path) -> None:
    made = changed(program, WEIGHTS, lambda stored: stored["config"]["0.0.weight"].update(use_pickle=True))
    assert "stores 0.0.weight as a pickle" in refused(made)


def test_a_weight_that_is_read_as_an_object_is_refused_whatever_its_flag_says(program: Path) -> None:
    made = changed(program, WEIGHTS, lambda stored: stored["config"]["0.0.weight"].update(path_name="opaque_obj_0"))
    assert "stores 0.0.weight as a pickle" in refused(made)


@pytest.mark.parametrize(
    "member", ["data/weights/model.pt", "data/constants/model.pt", "data/aotinductor/model/net.so"]
)
def test_a_member_that_torch_would_unpickle_or_load_is_refused(member: str, program: Path) -> None:
    made = rewritten(program, lambda name, content: content)
    with zipfile.ZipFile(made, "a") as archive:
        archive.writestr(f"{archive.namelist()[0].partition('/')[0]}/{member}", b"x")
    assert f"holds {member!r}, which is neither a tensor nor a graph" in refused(made)


@pytest.mark.parametrize(
    "called",
    [
        *("torch.os.system", "_operator.methodcaller", "torch.ops.aten.__class__.mro", "#x:y"),
        *("torch.ops.aten.from_file.default", "torch.ops.aten.from_file", "torch.ops.aten.save.default"),
    ],
)
def test_a_graph_that_calls_no_operator_is_refused(called: str, program: Path) -> None:
    def other(stored: dict[str, Any]) -> None:
        stored["graph_module"]["graph"]["nodes"][0]["target"] = called

    assert f"calls {called!r}, which is not an operator" in refused(changed(program, GRAPH, other))


def test_an_operator_that_another_is_given_is_looked_at_too(program: Path) -> None:
    def other(stored: dict[str, Any]) -> None:
        node = stored["graph_module"]["graph"]["nodes"][0]
        node["inputs"].append({"name": "op", "arg": {"as_operator": "torch.os.system"}, "kind": 1})

    assert "calls 'torch.os.system', which is not an operator" in refused(changed(program, GRAPH, other))


@pytest.mark.parametrize("called", ["s", "metadata", "name", "target"])
@pytest.mark.parametrize("part", ["sym_int_values", "tensor_values"])
def test_a_size_that_is_evaluated_as_python_is_refused_whatever_it_is_called(
    called: str, part: str, program: Path
) -> None:
    size = {"as_expr": {"expr_str": "__import__('os')"}}

    def other(stored: dict[str, Any]) -> None:
        stored["graph_module"]["graph"][part][called] = size if part == "sym_int_values" else {"sizes": [size]}

    assert "has a size of" in refused(changed(program, GRAPH, other))


LEAF = {"type": None, "context": None, "children_spec": []}


def called_with(spec: dict[str, Any]) -> str:
    """The structure of a call with one tensor and `spec` as its keyword arguments."""
    given = {"type": "builtins.tuple", "context": "null", "children_spec": [LEAF]}
    return json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [given, spec]}])


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "builtins.dict", "context": json.dumps([{"__enum__": True, "fqn": "trap:X", "name": "Y"}])},
        {"type": "builtins.dict", "context": json.dumps(["a':__import__('trap'),'b"])},
        {"type": "collections.defaultdict", "context": {"default_factory_module": "trap"}},
        {"type": "collections.namedtuple", "context": json.dumps("trap")},
    ],
    ids=["an enumeration", "a key that is code", "a factory", "a tuple of names"],
)
def test_a_call_of_other_things_than_tensors_is_refused(
    spec: dict[str, Any], program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.export.load would import a module for some of them, or write their names into code."""
    (program.parent / "trap.py").write_text("raise SystemExit('sprung')")
    monkeypatch.syspath_prepend(str(program.parent))

    def other(stored: dict[str, Any]) -> None:
        signature = stored["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = called_with({**spec, "children_spec": []})

    assert "is called with other things than tensors" in refused(changed(program, GRAPH, other))


def test_an_argument_whose_name_is_code_is_refused(program: Path) -> None:
    def other(stored: dict[str, Any]) -> None:
        signature = stored["graph_module"]["module_call_graph"][0]["signature"]
        signature["forward_arg_names"] = ["input", "y=__import__('os').system('true')"]

    assert "has a name of " in refused(changed(program, GRAPH, other))


def test_guards_are_left_out(program: Path) -> None:
    made = changed(program, GRAPH, lambda stored: stored.update(guards_code=["__import__('os').abort()"]))
    assert exported.read(made)._guards_code == []


def test_names_of_weights_may_hold_what_pythons_may_not(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.ModuleDict({"block-1": torch.nn.Linear(6, 4)}))
    net.forward = net[0]["block-1"].forward  # type: ignore[method-assign]
    torch.export.save(torch.export.export(net.eval(), (torch.zeros(3, 6),)), str(tmp_path / "net.pt2"))
    assert exported.network(tmp_path / "net.pt2")(torch.zeros(3, 6)).shape == (3, 4)


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.LSTM(4, 4, num_layers=2, dropout=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.inner(x)[0])


class Attention(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1 * self.training)


class Frozen(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return torch.as_tensor(self.inner(x))


def test_a_norm_that_keeps_no_statistics_is_no_training(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4, track_running_stats=False))
    torch.export.save(torch.export.export(net.eval(), (torch.ones(3, 6),)), str(tmp_path / "net.pt2"))
    assert exported.network(tmp_path / "net.pt2")(torch.zeros(3, 6)).shape == (3, 4)


@pytest.mark.parametrize(
    "layer",
    [torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4), torch.nn.AlphaDropout(0.2), torch.nn.RReLU(), Recurrent(),
     Attention(), Frozen()],
    ids=lambda layer: type(layer).__name__,
)  # fmt: skip
def test_a_program_that_still_trains_is_refused(layer: torch.nn.Module, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(6, 4), layer)
    torch.export.save(torch.export.export(net.train(), (torch.zeros(3, 6),)), str(tmp_path / "net.pt2"))
    with pytest.raises(ModelError, match="was exported in training mode, .* export it after model.eval()"):
        exported.network(tmp_path / "net.pt2")
    torch.export.save(torch.export.export(net.eval(), (torch.zeros(3, 6),)), str(tmp_path / "net.pt2"))
    assert exported.network(tmp_path / "net.pt2")(torch.zeros(3, 6)).shape == (3, 4)


def test_a_name_that_would_become_code_is_refused(program: Path) -> None:
    def other(stored: dict[str, Any]) -> None:
        stored["graph_module"]["graph"]["inputs"][0]["as_tensor"]["name"] = "x=print(1)"

    assert "has a name of 'x=print(1)'" in refused(changed(program, GRAPH, other))


def test_open_sides_pass(tmp_path: Path) -> None:
    """Sizes are expressions there."""

    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = torch.nn.Conv1d(3, 4, 3, padding=1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x)[:, :, : x.shape[2] // 2].flatten(1)

    sides = ({0: torch.export.Dim("batch", min=1, max=64), 2: 2 * torch.export.Dim("half", min=1, max=64)},)
    made = torch.export.export(Half().eval(), (torch.zeros(2, 3, 8),), dynamic_shapes=sides)
    torch.export.save(made, str(tmp_path / "net.pt2"))
    with zipfile.ZipFile(tmp_path / "net.pt2") as archive:
        assert b"expr_str" in archive.read("net/models/model.json")
    assert exported.network(tmp_path / "net.pt2")(torch.zeros(5, 3, 12)).shape == (5, 24)


def test_a_damaged_program_is_one_line(program: Path) -> None:
    made = rewritten(program, lambda name, content: b"{}" if name.endswith("models/model.json") else content)
    with pytest.raises(ModelError, match="cannot be opened: .*; export it again with this PyTorch") as caught:
        exported.network(made)
    assert "\n" not in str(caught.value)


def test_two_inputs_are_refused(tmp_path: Path) -> None:
    class Two(torch.nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a + b

    buffer = io.BytesIO()
    torch.export.save(torch.export.export(Two(), (torch.zeros(1, 3), torch.zeros(1, 3))), buffer)
    (tmp_path / "two.pt2").write_bytes(buffer.getvalue())
    with pytest.raises(ModelError, match=r"has 2 inputs \(a, b\), but each sample is one array"):
        exported.network(tmp_path / "two.pt2")
