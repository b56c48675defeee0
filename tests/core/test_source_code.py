"""Which edits of edgekit's own source make a stage run again: those that change what the stage computes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.core import cache_key, source_code
from edgekit.device import pyz

Edit = Callable[[str], str]

COMMENT: Edit = lambda text: text + "\n# a remark\n"  # noqa: E731
BEHAVIOUR: Edit = lambda text: text + "\nSEEDED_EDIT = 1\n"  # noqa: E731
DOCSTRING: Edit = lambda text: '"""Another docstring."""\n' + text[text.index('"""', 3) + 3 :]  # noqa: E731


def replaced(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text, old
        return text.replace(old, new, 1)

    return edit


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of edgekit's source that may be edited."""
    copy = tmp_path_factory.mktemp("source") / "edgekit"
    shutil.copytree(source_code.ROOT, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def edited(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, Edit], None]]:
    """Edit a file of the copy, whose source the keys are made of; it is put back afterwards."""
    monkeypatch.setattr(source_code, "ROOT", tree)
    monkeypatch.setattr(pyz, "EDGEKIT", tree)
    before: dict[Path, str] = {}
    source_code.clear_caches()

    def apply(name: str, edit: Edit) -> None:
        path = tree / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        before.setdefault(path, text)
        path.write_text(edit(text), encoding="utf-8")
        source_code.clear_caches()

    yield apply
    for path, text in before.items():
        path.write_text(text, encoding="utf-8") if text else path.unlink()
    source_code.clear_caches()


EDITS = [
    # what is written about the code, and not what it does
    ("prune", "stages/prune/structured.py", COMMENT, False),
    ("prune", "stages/prune/structured.py", DOCSTRING, False),
    ("distill", "training/fit.py", COMMENT, False),
    ("distill", "training/fit.py", DOCSTRING, False),
    ("convert", "targets/tflite/convert.py", DOCSTRING, False),
    ("prune", "core/budget.py", replaced("import", "import"), False),
    # what a stage computes
    ("prune", "stages/prune/structured.py", BEHAVIOUR, True),
    ("distill", "training/fit.py", BEHAVIOUR, True),
    ("distill", "training/losses/dist.py", BEHAVIOUR, True),  # a plug-in
    ("quantize", "targets/openvino/convert.py", BEHAVIOUR, True),  # in a process of its own
    ("convert", "targets/worker.py", BEHAVIOUR, True),
    ("convert", "targets/onnx/convert.py", BEHAVIOUR, True),
    ("benchmark", "stages/benchmark/decision.py", BEHAVIOUR, True),
    ("profile", "models/store.py", BEHAVIOUR, True),
    ("prune", "runner/preprocess/steps.py", BEHAVIOUR, True),  # imported through several others
    ("distill", "training/teachers/worker.py", BEHAVIOUR, True),
    # other stages
    ("distill", "stages/prune/structured.py", BEHAVIOUR, False),
    ("convert", "stages/quantize/qat.py", BEHAVIOUR, False),
    # reports, commands, the doctor, the server, devices
    ("distill", "report/formatting.py", BEHAVIOUR, False),
    ("distill", "cli/__init__.py", BEHAVIOUR, False),
    ("distill", "device/doctor/advice.py", BEHAVIOUR, False),
    ("prune", "serve/app.py", BEHAVIOUR, False),
    ("quantize", "device/monitor/monitor.py", BEHAVIOUR, False),
    ("profile", "device/releases/records.py", BEHAVIOUR, False),
    ("distill", "device/trust/policy.py", BEHAVIOUR, False),
    ("prune", "fleet/devices/wheels.py", BEHAVIOUR, False),
    ("prune", "core/progress.py", BEHAVIOUR, False),
    ("benchmark", "core/schema/variants.py", replaced("median, milliseconds", "the median"), False),
    ("distill", "workbook/notebook.py", BEHAVIOUR, False),
    ("profile", "targets/tflite/convert.py", BEHAVIOUR, False),  # which only times its files
    # how samples are read: their digest is in the key
    ("distill", "data/sources/image_folder.py", BEHAVIOUR, False),
    # a network that the config does not name, and a module that is new
    ("distill", "models/repvgg.py", BEHAVIOUR, False),
    ("convert", "targets/something_new.py", BEHAVIOUR, False),
    ("distill", "training/losses/something_new.py", BEHAVIOUR, True),
    # what edgerun.pyz is packed of, as it is written
    ("bundle", "device/doctor/advice.py", COMMENT, True),
    ("bundle", "serve/app.py", COMMENT, True),
]


@pytest.mark.parametrize(("stage", "name", "edit", "changes"), EDITS)
def test_a_stage_runs_again_where_an_edit_changes_what_it_computes(
    edited: Callable[[str, Edit], None], stage: str, name: str, edit: Edit, changes: bool
) -> None:
    before = cache_key.code_digests(stage)
    edited(name, edit)
    after = cache_key.code_digests(stage)
    assert (before != after) is changes


SPELLINGS = [
    ("x = 1", "x=1  # one", True),
    ("x: int = 1", "x = 1", True),
    ("x: int", "", True),
    ("def f(a: int) -> int:\n    return a", "def f(a):\n    'Doubles.'\n    return a", True),
    ("if TYPE_CHECKING:\n    import numpy", "", True),
    ("class A:\n    x: int", "class A:\n    x: float", False),  # pydantic reads it
    ("x = {**a, 1: b}", "x = {1: a, **b}", False),
    ("def f(*, a, b=1): pass", "def f(*, a=1, b): pass", False),
    ("x = 1", "x = True", False),
    ("x = 'a'", "x = 'b'", False),
    ("f(a, b)", "f(b, a)", False),
]


@pytest.mark.parametrize(("first", "second", "same"), SPELLINGS)
def test_the_digest_of_a_module_follows_what_it_does(
    edited: Callable[[str, Edit], None], first: str, second: str, same: bool
) -> None:
    digests = []
    for text in (first, second):
        edited("core/spelling.py", lambda _, text=text: text + "\n")
        digests.append(source_code.code_digest("edgekit.core.spelling"))
    assert (digests[0] == digests[1]) is same


def test_the_code_of_a_reference_network_counts_where_it_is_named(edited: Callable[[str, Edit], None]) -> None:
    config = {"student": {"builder": "edgekit.models.repvgg:repvgg"}}
    before = cache_key.collect_inputs("distill", config, None, "d" * 64, [])
    edited("models/repvgg.py", COMMENT)
    assert cache_key.describe_changes(before, cache_key.collect_inputs("distill", config, None, "d" * 64, [])) == []
    edited("models/repvgg.py", BEHAVIOUR)
    now = cache_key.collect_inputs("distill", config, None, "d" * 64, [])
    assert cache_key.describe_changes(before, now) == ["source of edgekit.models.repvgg:repvgg"]
    after = cache_key.collect_inputs("prune", {}, None, "d" * 64, [], builders=now.builders)
    assert after.builders == now.builders  # what a later stage reads is a network of this code


def test_digests_are_stored_and_read_back(
    edited: Callable[[str, Edit], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source_code.clear_caches()
    first = source_code.code_digest("edgekit.core.hashing")
    (stored,) = (tmp_path / "edgekit").iterdir()
    for content in (stored.read_bytes(), b"{", b'{"a": 1}'):
        stored.write_bytes(content)
        source_code.clear_caches()
        assert source_code.code_digest("edgekit.core.hashing") == first


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"edgekit\.nothing: edgekit has no such module"):
        source_code.closure(["edgekit.nothing"])
