"""Stage keys: what they depend on, and what is said when they change."""

from __future__ import annotations

import dataclasses
import sys
from importlib import metadata
from pathlib import Path

import pytest

from edgekit.core import cache_key, replay
from edgekit.core.cache_key import CacheInputs, collect_inputs, describe_changes

DATA = "d" * 64


def cache_inputs(**changed: object) -> CacheInputs:
    base = collect_inputs("prune", {"ratio": 0.5, "budget": {"accuracy_drop_pp": 1.0}}, "s" * 64, DATA, ["numpy"])
    return dataclasses.replace(base, **changed)  # type: ignore[arg-type]


def test_the_same_ingredients_have_the_same_key() -> None:
    assert cache_inputs().key == cache_inputs().key


@pytest.mark.parametrize(
    ("changed", "change"),
    [
        ({"config": {"ratio": 0.4, "budget": {"accuracy_drop_pp": 1.0}}}, "ratio 0.5 → 0.4"),
        ({"config": {"ratio": 0.5, "budget": {"accuracy_drop_pp": 2.0}}}, "budget.accuracy_drop_pp 1.0 → 2.0"),
        ({"config": {"budget": {"accuracy_drop_pp": 1.0}}}, "ratio 0.5 → absent"),
        ({"data": "e" * 64}, "data dddddddd → eeeeeeee"),
        ({"libraries": {"numpy": "1.0"}}, "→ 1.0"),
        ({"source": "t" * 64}, "the artifact that it reads"),
        ({"replayed": {"winners": {}, "too_slow": [], "buys_nothing": []}}, "the decisions to replay"),
        ({"builders": {"nets:mlp": "f" * 64}}, "source of nets:mlp"),
    ],
)
def test_a_changed_ingredient_changes_the_key_and_is_named(changed: dict[str, object], change: str) -> None:
    before, now = cache_inputs(), cache_inputs(**changed)
    assert before.key != now.key
    (line,) = describe_changes(before, now)
    assert change in line


def test_code_that_prepares_samples_is_an_ingredient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prepares_for_us.py").write_text("def prepare(raw):\n    return raw\n")
    monkeypatch.syspath_prepend(tmp_path)
    config = {"reference_preprocess": "prepares_for_us:prepare"}
    before = collect_inputs("convert", config, None, DATA, ["numpy"])
    (tmp_path / "prepares_for_us.py").write_text("def prepare(raw):\n    return -raw\n")
    assert describe_changes(before, collect_inputs("convert", config, None, DATA, ["numpy"])) == [
        "source of prepares_for_us:prepare"
    ]


def test_without_a_change_nothing_is_described() -> None:
    assert describe_changes(cache_inputs(), cache_inputs()) == []


def test_one_and_one_point_zero_are_not_the_same_option() -> None:
    assert describe_changes(cache_inputs(config={"steps": 1}), cache_inputs(config={"steps": True})) == [
        "steps 1 → True"
    ]


def test_changed_code_is_named_by_its_part() -> None:
    code = {**cache_inputs().code, "stages/prune": "0" * 64, "training": "1" * 64}
    assert describe_changes(cache_inputs(), cache_inputs(code=code)) == [
        "code of edgekit/stages/prune",
        "code of edgekit/training",
    ]


def test_a_stage_depends_on_its_own_folder_and_on_no_other_stage() -> None:
    code = cache_inputs().code
    assert "stages/prune" in code
    assert not [part for part in code if part.startswith("stages/") and part != "stages/prune"]


def test_the_users_own_source_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "some_nets.py"
    module.write_text("a = 1\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    config = {"student": {"builder": "some_nets:mlp"}}
    first = collect_inputs("distill", config, None, DATA, [])
    module.write_text("a = 2\n")
    assert describe_changes(first, collect_inputs("distill", config, None, DATA, [])) == ["source of some_nets:mlp"]


def test_a_library_that_is_not_installed_is_an_error() -> None:
    with pytest.raises(metadata.PackageNotFoundError):
        collect_inputs("convert", {}, None, DATA, ["numpy", "no-such-library"])


@pytest.mark.parametrize(
    ("files", "edited", "noticed"),
    [
        (["mine.py", "blocks.py"], "blocks.py", True),
        (["mine.py", "blocks/__init__.py", "blocks/inner.py"], "blocks/inner.py", True),
        (["mine/net.py"], "mine/net.py", True),
        (["mine.py", "other.py"], "other.py", False),
    ],
    ids=["a module beside", "a package beside", "a package without __init__", "a module that is not imported"],
)
def test_what_the_users_source_imports_beside_it_is_part_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: list[str], edited: str, noticed: bool
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("from blocks import block\n" if name.startswith("mine") else "block = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = cache_key.source_digest("mine:net")
    assert before is not None
    (tmp_path / edited).write_text("block = 2\n")
    assert (cache_key.source_digest("mine:net") != before) is noticed


RECORDS: dict[str, dict[str, object]] = {
    "benchmark": {"winners": {"onnx": "a"}, "too_slow": [], "buys_nothing": []},
    "distill": {"in_time": ["a"], "trained": ["a"]},
}


@pytest.mark.parametrize(("stage", "other"), [("benchmark", "distill"), ("distill", "benchmark")])
def test_decisions_to_replay_are_part_of_the_key_of_their_stage_alone(tmp_path: Path, stage: str, other: str) -> None:
    free = collect_inputs(stage, {}, None, DATA, [], tmp_path)
    replay.write(tmp_path, {stage: RECORDS[stage]})
    assert describe_changes(free, collect_inputs(stage, {}, None, DATA, [], tmp_path)) == ["the decisions to replay"]
    assert collect_inputs(other, {}, None, DATA, [], tmp_path).replayed is None
    assert collect_inputs("prune", {}, None, DATA, [], tmp_path).replayed is None
