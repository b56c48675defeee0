"""Whatever is wrong with a network of the user's, notebook 01 says it in a sentence: what, where, what to do."""

from __future__ import annotations

import contextlib
import errno
import io
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import broken_nets as nets
import numpy as np
import pytest
import torch
from torch import nn

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import EdgekitError, ModelError, ResourceError
from edgekit.core.hashing import write_json
from edgekit.data import Data, Split
from edgekit.models import dry_run, store
from edgekit.models.user_errors import describe, reporting_failures
from edgekit.stages import profile
from edgekit.stages.profile import session
from edgekit.targets import evaluate

NETS = "broken_nets"
BARE = re.compile(r"(Error|Exception|Exit): '?[\w.]*'?$|Traceback|\n|object at 0x|'NoneType' object")
DOES = re.compile(
    r"; (?:.*\b)?(?:add|call|change|choose|compute|draw|export|fix|give|install|join|keep|let|look|make|mend|move|name|"
    r"put|raise|return|say|stack|take|use|wrap|write|did you mean)\b"
)
FILES = {
    "syntax": ("def make(:\n    pass\n", r"SyntaxError: .* \(syntax\.py, line 1\); fix that line"),
    "raises_at_import": ("x = 1\nraise KeyError('k')\n", r"there is no 'k' \(raises_at_import\.py, line 2\)"),
    "exits_at_import": ("import sys\nsys.exit(1)\n", r"it calls sys\.exit\(1\)"),
    "wants_a_module": ("import not_there_at_all\n", r"wants_a_module\.py, line 1\); install not_there_at_all"),
    "one": ("from two import make\n", r"two files import each other"),
    "two": ("from one import make\n", r"two files import each other"),
    "misspelt": ("def make_net():\n    pass\n", r'no \'make\' in misspelt; .* did you mean "make_net"'),
    "empty": ("", r"no 'make' in empty"),
    "a_value": ("make = 3\n", r"'make' is an int, not a function"),
    "nul": ("a = '\0'", r"SyntaxError|ValueError"),
    "latin": ("word = 'gr\udcfc\udcdfe'\ndef make(): pass\n", r"SyntaxError"),
    "endless": ("exec(open(__file__).read())\n", r"RecursionError"),
}


@pytest.fixture(scope="module")
def data() -> Data:
    generator = np.random.default_rng(0)

    def split(count: int) -> Split:
        return Split(generator.normal(size=(count, 6)).astype(np.float32), np.arange(count) % 3)

    return Data(split(24), split(6), split(12), ("a", "b", "c"), "vector", "0" * 64)


def origin(folder: Path, data: Data, builder: str, **kwargs: object) -> Artifact:
    artifacts.begin(folder)
    model = {"builder": builder, "kwargs": kwargs}
    described = {"model": model, "source_sha256": None, "data": {}, "preprocess": [], "weights": None}
    write_json(folder / "origin.json", described)
    return artifacts.seal(folder, stage="origin", source=None, data_digest=data.digest, config=described, metrics={})


def error_message(tmp_path: Path, data: Data, builder: str, **kwargs: object) -> str:
    """What the profile stage says; that it is a sentence with what to do, whatever it is about."""
    config = profile.ProfileConfig(epochs=1, batch_size=8, latency_calls=20, threads=1, compiling=False, runtimes=False)
    with pytest.raises((ModelError, ResourceError)) as caught, contextlib.redirect_stdout(io.StringIO()):
        profile.run(origin(tmp_path / "origin", data, builder, **kwargs), data, config, tmp_path / "profile")
    message = str(caught.value)
    assert isinstance(caught.value, ResourceError) == ("more memory than there is" in message), message
    assert not BARE.search(message), message
    assert builder.partition(":")[0] in message and len(message) < 700, message
    assert DOES.search(message), f"does not say what to do: {message}"
    assert not (tmp_path / "profile" / artifacts.RECORD).exists()
    return message


@pytest.mark.parametrize("name", nets.OUTPUTS)
def test_what_comes_out(name: str, tmp_path: Path, data: Data) -> None:
    message = error_message(tmp_path, data, f"{NETS}:outputs", name=name)
    if name in ("named", "a_dict_of_logits", "a_dataclass"):
        assert ".logits" in message or "return the one that counts" in message
    if name in ("integers", "booleans", "complex", "double", "half"):
        assert "must return logits of shape (1, 3) as float32" in message


EXPECTED = {
    "KeyMissing": "there is no 'k' (broken_nets.py, line ",
    "Raises": "ValueError, without a message (broken_nets.py, line ",
    "Unreached": "depends on the values that come in",
    "RaisesOnValues": "fails on a sample of the data: RuntimeError: these values are not for me (broken_nets.py, line ",
    "RaisesAlone": "give me a batch (broken_nets.py",
    "RaisesInEval": "no eval",
    "RaisesInTraining": "fails in training mode: IndexError: list index out of range (broken_nets.py",
    "AuxiliaryInTraining": "returned in training mode a tuple of 2",
    "ChangesItsInput": "changes its input in place",
    "CountsItsCalls": "changes calls while it answers",
    "AlwaysDrops": "answers the same sample differently each time",
    "Endless": "it calls itself without end",
    "Exits": "it calls sys.exit(enough)",
    "ExitsOnValues": "it calls sys.exit(0)",
    "TakesTwo": "it takes several inputs: give each as an array",
    "Enormous": "it asks for more memory than there is",
    "Scripted": "layer first is TorchScript, which can be neither traced nor exported",
    "SkipsForZeros": "(extra: not for zeros, which converters trace)",
    "Nothing": "has no parameters, so there is nothing to train",
    "Held": "cannot pickle",
    "OwnGradient": "there is no 'saved' (broken_nets.py",
}


@pytest.mark.parametrize("name", nets.CLASSES)
def test_what_happens_on_the_way(name: str, tmp_path: Path, data: Data) -> None:
    assert EXPECTED.get(name, "") in error_message(tmp_path, data, f"{NETS}:on_the_way", name=name)


def test_a_network_without_end_is_refused_where_converters_have_raised_pythons_limit() -> None:
    """As litert_converter and onnx2tf do; where the stack overflows first, the process ends by SIGSEGV."""
    code = "import sys, pytest; sys.setrecursionlimit(10**6); sys.exit(pytest.main(sys.argv[1:]))"
    test = f"{__file__}::{test_what_happens_on_the_way.__name__}[Endless]"
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:nbval", "-p", "no:cacheprovider", test],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        ("hooked", "LookupError: in a hook (broken_nets.py"),
        ("double_weights", "return net.float()"),
        ("half_weights", "return net.float()"),
        ("frozen", "has no parameter with requires_grad"),
        ("too_narrow", "in layer 0, a Linear"),
        ("for_pictures", "in layer 0, a Conv2d"),
        ("returns_the_class", "returned the class Valid; call it"),
        ("returns_none", "returned a NoneType; let it end with `return net`"),
        ("returns_a_number", "returned an int"),
        ("is_awaited", "returned a coroutine"),
        ("raises", "there is no 'width' (broken_nets.py"),
        ("exits", "it calls sys.exit(3)"),
        ("endless", "it calls itself without end"),
        ("wants_more", "needs width; give it under model.kwargs"),
        ("wants_words", "IndexError"),
        ("enormous", "it asks for more memory than there is"),
        ("NOT_CALLABLE", "is an int, not a function"),
        ("validd", 'did you mean "valid"?'),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_builders(builder: str, expected: str, tmp_path: Path, data: Data) -> None:
    assert expected in error_message(tmp_path, data, f"{NETS}:{builder}")


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, tmp_path: Path, data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    for each, (text, _) in FILES.items():
        (tmp_path / f"{each}.py").write_bytes(text.encode(errors="surrogateescape"))
    monkeypatch.syspath_prepend(str(tmp_path))
    message = error_message(tmp_path / "run", data, f"{name}:make")
    for each in FILES:
        sys.modules.pop(each, None)
    assert re.search(FILES[name][1], message), message


def test_an_unknown_keyword_and_no_such_file(tmp_path: Path, data: Data) -> None:
    assert "takes no 'widht'" in error_message(tmp_path / "one", data, f"{NETS}:wants_more", widht=3)
    assert "there is no module 'not_there'" in error_message(tmp_path / "two", data, "not_there.nets:make")


def spec(builder: str) -> store.ModelSpec:
    raw = {"kind": "vector", "shape": [6], "dtype": "float32"}
    return store.ModelSpec(builder=builder, input_shape=(6,), num_classes=3, classes=("a", "b", "c"), raw=raw)


@pytest.mark.parametrize("builder", nets.ODD_BUT_VALID)
def test_odd_but_valid_networks_pass(builder: type[nn.Module], data: Data) -> None:
    """And is the same afterwards."""
    module = builder().eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with contextlib.redirect_stdout(io.StringIO()):
        store.check_forward(module, spec(f"{NETS}:valid"))
        dry_run.check_network(module, spec(f"{NETS}:valid"), torch.from_numpy(data.validation.x), trains=True)
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in before.items())
    assert not module.training and all(parameter.grad is None for parameter in module.parameters())


def test_a_fault_that_few_samples_show_is_a_sentence_wherever_it_comes(tmp_path: Path, data: Data) -> None:
    """In the session's process of profile, in its evaluation, and where convert asks the network."""
    folder, odd = tmp_path / "model", np.full((8, 6), 2e6, np.float32)
    store.save(folder, nets.large(), spec(f"{NETS}:large"))
    messages = []
    with pytest.raises(ModelError) as caught:
        evaluate.torch_outputs(folder, odd)
    messages.append(str(caught.value))
    with pytest.raises(ModelError) as caught:
        session.measure(folder, odd, 20, 1, 120)
    messages.append(str(caught.value))
    few = replace(data, validation=Split(np.concatenate([data.validation.x, odd]), np.arange(20) % 3))
    messages.append(error_message(tmp_path, few, f"{NETS}:large"))
    for each in messages:
        assert "KeyError: there is no 'large' (broken_nets.py, line " in each and not BARE.search(each)


@pytest.mark.parametrize(
    "raised",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate memory"),
        OSError(errno.ENOSPC, "No space left on device"),
    ],
    ids=["Python", "torch", "disk"],
)
def test_what_the_machine_lacks_is_no_fault_of_the_network(raised: Exception) -> None:
    """Found only after hours, so not by a trial; the network's own code was at work."""
    network = nets.outputs("of_the_class")
    type(network).change = staticmethod(lambda _: (_ for _ in ()).throw(raised))
    message = r"nets:mine: fails in training: .*; (it asks for more memory|make room)"
    with pytest.raises(ResourceError, match=message), reporting_failures("nets:mine", "in training", network):
        network(torch.zeros(1, 6))
    with pytest.raises(ResourceError):
        store.check_forward(network, spec(f"{NETS}:valid"))


def test_memory_that_a_step_lacks_outside_of_the_network() -> None:
    with pytest.raises(ResourceError), reporting_failures("nets:mine", "in training"):
        torch.zeros(10**16)


@pytest.mark.parametrize("seed", range(16))
def test_a_network_that_draws_is_known_by_that(seed: int) -> None:
    """Its answers to one sample may well be the same twice; to four of them they hardly are."""
    network = nets.AlwaysDrops().eval()
    torch.manual_seed(seed)
    with pytest.raises(ModelError, match="answers the same sample differently each time"):
        dry_run.check_network(network, spec(f"{NETS}:valid"), torch.ones(4, 6), trains=False)


def test_a_hook_that_cannot_be_set_leaves_none_behind() -> None:
    network = nets.Scripted()
    network.first = nn.Sequential(nn.Linear(6, 8), network.first)
    with pytest.raises(ModelError, match="use the Python module that it was made from"):
        dry_run.check_network(network, spec(f"{NETS}:valid"), torch.ones(2, 6), trains=True)
    assert not any(layer._forward_pre_hooks for layer in network.modules())


def test_code_of_libraries_wherever_they_lie_is_not_the_users() -> None:
    namespace: dict[str, Any] = {}
    for folder in ("/usr/lib/python3/dist-packages", "/home/me/.local/lib/python3.12/site-packages", "/home/me"):
        exec(compile("def fails():\n    raise ValueError('x')\n", f"{folder}/theirs.py", "exec"), namespace)
        with pytest.raises(ValueError, match="x") as caught:
            namespace["fails"]()
        assert ("theirs.py" in describe(caught.value)) == (folder == "/home/me")


class CallsWithTooLittle(nn.Module):
    """Its own forward leaves out what one of its layers takes."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Bilinear(6, 6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.gate(x))


class HasARule(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(f"rows and columns should be the same, got {tuple(x.shape)}")


@pytest.mark.parametrize("network", [CallsWithTooLittle(), HasARule()], ids=["missing", "same"])
def test_advice_is_only_given_where_its_cause_is_certain(network: nn.Module) -> None:
    with pytest.raises(ModelError) as caught, reporting_failures("nets:mine", "in training", network):
        network(torch.zeros(1, 6))
    message = str(caught.value)
    assert "(test_broken.py, line " in message
    assert message.endswith("; fix it there, or report it, with the network, if the same works without edgekit")


def test_there_are_many() -> None:
    assert len(nets.OUTPUTS) + len(nets.CLASSES) + len(FILES) >= 60


def test_the_valid_network_is_profiled(tmp_path: Path, data: Data) -> None:
    """Without this, the other tests would show little."""
    config = profile.ProfileConfig(epochs=1, batch_size=8, latency_calls=20, threads=1, compiling=False, runtimes=False)
    made = profile.run(origin(tmp_path / "origin", data, f"{NETS}:valid"), data, config, tmp_path / "profile")
    assert made.metrics["parameters"] == sum(each.numel() for each in nets.valid().parameters())
    assert isinstance(nets.valid(), nn.Module) and issubclass(ModelError, EdgekitError)
