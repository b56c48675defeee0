"""Exported PyTorch programs: run as the network they came from, and nothing in them unpickled."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edgekit.errors import ModelError
from edgekit.sources import exported
from tests.sources import files


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
    """It was exported for a batch of one, and is asked many."""
    x = torch.from_numpy(files.samples())
    module = exported.network(program)
    with torch.inference_mode():
        assert torch.allclose(module.eval()(x), files.network()(x), atol=1e-5)
    opened = exported.open(program, 0)
    assert opened.shape == (1, *files.SHAPE)
    assert torch.allclose(torch.from_numpy(opened.sized(x.shape)(x.numpy())), files.network()(x), atol=1e-5)


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


def test_a_pickled_weight_is_refused(program: Path) -> None:
    def pickled(name: str, content: bytes) -> bytes:
        if not name.endswith("model_weights_config.json"):
            return content
        stored = json.loads(content)
        stored["config"]["0.0.weight"]["use_pickle"] = True
        return json.dumps(stored).encode()

    with pytest.raises(ModelError, match="stores 0.0.weight as a pickle, .* export the network with plain tensors"):
        exported.network(rewritten(program, pickled))


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
    with pytest.raises(ModelError, match="has 2 inputs and 1 outputs"):
        exported.network(tmp_path / "two.pt2")
