"""The reference is true: it has every option, command, exit code and field, and says of each what the code does."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tomllib
from pydantic import BaseModel, ValidationError

from docs.generate import blocks, commands, environment, exit_codes, options, result, sources, tasks
from edgekit import data
from edgekit.core.config import SHARED_FIELDS, STAGES
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import TASKS
from edgekit.data import arrays, config_class, source_names
from edgekit.training import augmentations, losses
from edgekit.workbook.config_file import RunConfig, stage_config
from edgekit.workbook.plan import load_plan
from tests.conftest import ROOT
from tests.runner.conftest import LABELS, samples

SECTIONS = dict(options.every_section())
EVERY = [(name, option) for name, found in SECTIONS.items() for option in found]
PAGES = {page.name: page for page in blocks.pages()}


NEEDED: dict[str, dict[str, Any]] = {
    "boxes": {"path": "x", "annotations": "voc"},
    "csv_rows": {"path": "x", "label": "y"},
    "csv_windows": {"path": "x", "window": 8},
    "digits": {},
    "instance_masks": {"path": "x", "annotations": "coco"},
    "keypoints": {"path": "x", "annotations": "coco"},
    "python": {"function": "a:b"},
}
"""Options that a source cannot do without; all others need a path."""


def page(name: str) -> str:
    found = PAGES.get(name) or next((ROOT / "docs").rglob(name))
    return found.read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert page(name) == blocks.refreshed(page(name)), f"run {blocks.COMMAND}"


def test_these_pages_have_generated_parts() -> None:
    assert set(PAGES) == {
        "bundle-format.md", "command-line.md", "config.md", "exit-codes.md", "model-files.md", "result.md",
        "ci.md", "other-tasks.md",
    }  # fmt: skip


# Sources and variables


@pytest.mark.parametrize("source", source_names())
def test_the_table_of_sources_says_what_a_source_gives(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds, splits = sources.WORDS[source]
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"tests.data.sources.test_{source}")
    section = module.section(tmp_path, monkeypatch)
    config = data.parse({"source": source, **section}, getattr(module, "TASK", "classification"))
    pools = importlib.import_module(options.module_of_source(source)).read(config)
    assert pools.kind in kinds
    there = [name for name in ("train", "validation", "test") if getattr(pools, name) is not None]
    assert all(name in splits for name in there)
    assert f"| `{source}` |" in page("config.md")


def test_the_tasks_of_a_source_are_those_that_it_serves() -> None:
    for source in source_names():
        row = sources.row(source)
        for task in TASKS:
            try:
                data.parse({"source": source, **NEEDED.get(source, {"path": "x"})}, task)
            except ConfigError:
                assert row[3] != "all" and f"`{task}`" not in row[3]
            else:
                assert row[3] == "all" or f"`{task}`" in row[3]


def test_the_table_of_tasks_has_every_task() -> None:
    """That a device answers with what stands there is tested in `tests/tasks`."""
    assert set(tasks.WORDS) == set(TASKS)


def test_every_environment_variable_is_on_the_page() -> None:
    found: set[str] = set()
    for place in ("edgekit", "notebooks", "tests", "Makefile"):
        paths = [ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*")
        for path in paths:
            if path.suffix in (".py", ".ipynb", ".md", ".sh", "") and path.is_file():
                found.update(re.findall(r"EDGE(?:KIT|RUN)_[A-Z_]+", path.read_text(encoding="utf-8", errors="replace")))
    documented = {name for names in environment.VARIABLES.values() for name in names if name.startswith("EDGE")}
    assert documented == found - {"EDGEKIT_NOT_SET"} - {each for each in found if each.endswith("_")}
    assert all(f"| `{name}` |" in page("command-line.md") for name in documented)


# Config


def test_every_option_is_described() -> None:
    assert not [f"{section}.{option.name}" for section, option in EVERY if not option.meaning]


UNITS = {
    "_s": "second", "_ms": "millisecond", "_pp": "percentage point", "_db": "db", "_bytes": "bytes",
    "_hz": "per second",
}  # fmt: skip


def test_an_options_unit_is_stated() -> None:
    for section, option in EVERY:
        for unit in (unit for suffix, unit in UNITS.items() if option.name.endswith(suffix)):
            assert unit in option.meaning.lower(), f"{section}.{option.name}: {option.meaning}"


def test_every_section_of_a_config_has_its_options() -> None:
    text = page("config.md")
    for model in models():
        for name in set(model.model_fields) - {"task", "loss", *SHARED_FIELDS, *_key(model)}:
            assert f"\n| `{name}` |" in text, f"{model.__module__}.{model.__name__}.{name}"
    for stage in STAGES:
        assert f"\n## `{stage}`\n" in text
    for name in source_names():
        assert f"\n### `source: {name}`\n" in text
    for name in losses.NAMES:
        assert f"\n#### `loss: {name}`\n" in text
    for name in augmentations.NAMES:
        assert f"\n#### `kind: {name}`\n" in text


def _key(model: type[BaseModel]) -> set[str]:
    """What stands in a heading of its own."""
    return {"kind"} if issubclass(model, augmentations.AugmentationOptions) else set()


def models() -> Iterator[type[BaseModel]]:
    """Every model that a config is checked with, those inside others too."""
    waiting: list[Any] = [RunConfig, *map(stage_config, STAGES)]
    waiting += map(config_class, source_names())
    waiting += [importlib.import_module(options.module_of_loss(name)).Options for name in losses.NAMES]
    waiting += [importlib.import_module(options.module_of_augmentation(name)).Options for name in augmentations.NAMES]
    seen: set[type[BaseModel]] = set()
    while waiting:
        part = waiting.pop()
        if isinstance(part, type) and issubclass(part, BaseModel) and part not in seen:
            seen.add(part)
            yield part
            waiting += [field.annotation for field in part.model_fields.values()]
        waiting += get_args(part)


def test_models_inside_others_are_found() -> None:
    found = {model.__name__ for model in models()}
    assert {"Budget", "TeacherConfig", "NetworkConfig", "TrainOptions", "ModelFile"} <= found


BORDERS = [(name, option) for name, option in EVERY if name in STAGES and option.kind == "whole number" and option.span]


@pytest.mark.parametrize(("stage", "option"), BORDERS, ids=lambda part: getattr(part, "name", part))
def test_a_stated_range_is_where_the_code_refuses(stage: str, option: options.Option) -> None:
    found = re.fullmatch(r"(?:≥ )?([\d,]+)(?: to ([\d,]+))?", option.span)
    assert found, option.span
    low, high = (int(end.replace(",", "")) if end else None for end in found.groups())
    config = stage_config(stage)
    given = {"student": {"builder": "nets:make"}} if stage == "distill" else {}
    assert getattr(config.model_validate({**given, option.name: low}), option.name) == low
    for outside in (low - 1, None if high is None else high + 1):  # type: ignore[operator]
        if outside is not None:
            with pytest.raises(ValidationError):
                config.model_validate({**given, option.name: outside})


@pytest.mark.parametrize("stage", STAGES)
def test_a_stated_default_is_what_the_code_takes(stage: str) -> None:
    given = {"student": {"builder": "nets:make"}} if stage == "distill" else {}
    made = stage_config(stage).model_validate(given)
    for option in SECTIONS[stage]:
        value = getattr(made, option.name)
        if option.default == "none":
            assert not value or option.name == "student"
        elif isinstance(value, (bool, int, float, str)):
            assert str(value) == {"`true`": "True", "`false`": "False"}.get(option.default, option.default.strip("`"))


def test_every_array_of_a_source_is_named() -> None:
    part = page("config.md").split("### Names of arrays")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)`", part.split("| --- |")[-1])) == set(arrays.ARRAY_NAMES)


# Command lines

SCRIPTS: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
START = "import sys; from {module} import {function} as main; sys.argv[0] = {program!r}; sys.exit(main())"


def command(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command as pip installs it, in a process of its own."""
    module, function = SCRIPTS[program].split(":")
    return subprocess.run(
        [sys.executable, "-c", START.format(module=module, function=function, program=program), *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **commands.PLAIN, **environment},
        timeout=120,
        check=False,
    )


HELPS = [("edgekit", ""), ("edgekit", "run"), ("edgerun", ""), ("edgerun", "predict")]
"""`test_a_page_is_current` has all commands; these are called as a reader calls them."""


@pytest.mark.parametrize(("program", "name"), HELPS)
def test_the_page_shows_what_help_prints(program: str, name: str) -> None:
    done = command(program, *name.split(), "--help")
    assert done.returncode == 0, done.stderr
    heading = f"### {program} {name}" if name else f"## {program}"
    shown = re.search(rf"^{heading}\n[^#]*?```text\n(.*?)\n```$", page("command-line.md"), re.MULTILINE | re.DOTALL)
    assert shown, f"{program} {name} is missing"
    assert [line.rstrip() for line in done.stdout.strip("\n").splitlines() if line.strip()] == [
        line for line in shown[1].splitlines() if line
    ]


def test_the_page_has_every_command_that_help_lists() -> None:
    known = commands.edgekit_commands()
    groups = {name.rpartition(" ")[0] for name in known}
    for group in groups:
        help_text = command("edgekit", *group.split(), "--help").stdout
        inside = {name.rpartition(" ")[2] for name in known if name.rpartition(" ")[0] == group}
        assert set(re.findall(r"^│ ([a-z][a-z-]*) {2,}", help_text, re.MULTILINE)) == inside
    help_text = command("edgerun", "--help").stdout
    assert set(re.findall(r"^    ([a-z]+) {2,}", help_text, re.MULTILINE)) == set(commands.edgerun_commands())


# Exit codes


def codes(program: str) -> dict[int, str]:
    """The rows of the page: exit code and meaning."""
    text = page("exit-codes.md").split(f"\n## {program}\n")[1].split("\n## ")[0]
    return {int(number): meaning for number, meaning in re.findall(r"^\| `(\d+)` \| (.*?) \|", text, re.MULTILINE)}


EDITED = "edited.edge.zip"


@pytest.mark.parametrize(
    ("program", "arguments", "code"),
    [
        ("edgekit", ["--version"], 0),
        ("edgekit", ["run", "no-such-config.yaml"], 2),
        ("edgekit", ["run", "configs/digits.yaml", "--set", "prune.ratio=2", "--dry-run"], 2),
        ("edgekit", ["run", "configs/digits.yaml", "--dry-run", "--set", "data={source: npz, path: no.npz}"], 4),
        ("edgekit", ["report", "no-such-run"], 2),
        ("edgerun", ["--version"], 0),
        ("edgerun", ["walk"], 2),
        ("edgerun", ["verify", "no-such.edge.zip"], 4),
        ("edgerun", ["verify", EDITED], 8),
        ("edgerun", ["info", EDITED], 8),
        ("edgerun", ["selftest", "BUNDLE", "--interpreter", "openvino", "--device", "NPU"], 5),
    ],
)  # fmt: skip
def test_a_command_ends_with_a_listed_code(
    bundles: dict[str, Path], tmp_path: Path, program: str, arguments: list[str], code: int
) -> None:
    edited = tmp_path / EDITED
    edited.write_bytes(bundles["onnx"].read_bytes().replace(b"A tiny network", b"A tidy network"))
    names = {EDITED: str(edited), "BUNDLE": str(shutil.copy(bundles["onnx"], tmp_path))}
    done = command(program, *(names.get(word, word) for word in arguments), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == code, done.stderr
    assert code in codes(program)
    assert "Traceback" not in done.stderr


def test_every_exception_has_its_code_on_the_page() -> None:
    for program, module in (("edgekit", exit_codes.errors), ("edgerun", exit_codes.runner_errors)):
        for code, classes in exit_codes.meanings(module).items():
            assert all(text.endswith(".") and text in codes(program)[code] for text in classes.values())


# result.json


def test_every_field_of_the_schema_has_its_row() -> None:
    text, schema = page("result.md"), result.schema()
    top, *parts = re.split(r"\n### ", text)
    found = {part.split("\n")[0]: part for part in parts}
    assert set(found) == set(schema["$defs"])
    for name, part in (("", top), *found.items()):
        fields = (schema["$defs"][name] if name else schema)["properties"]
        assert re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE) == list(fields)
        assert "||" not in part.replace(" ", ""), f"{name}: a cell is empty"


# Python


def public() -> dict[str, Any]:
    """What the page of the Python API names: functions, and the methods of classes, by their full names."""
    found: dict[str, Any] = {}
    for name in re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "reference" / "python.md").read_text(), re.MULTILINE):
        value = pkgutil.resolve_name(name)
        if inspect.isclass(value):
            methods = {part: each for part, each in vars(value).items() if inspect.isfunction(each)}
            found |= {f"{name}.{part}": each for part, each in methods.items() if not part.startswith("_")}
        elif callable(value):
            found[name] = value
    return found


PUBLIC = public()
OF_OBSERVERS = (".answered", ".refused", ".dropped")
DOCUMENTED_IN_ONE_LINE = (
    "to_dict", "lines", "made_by", "model_files", "Model.step", "Monitor.attach", "Monitor.observe", "Monitor.sketch",
    *OF_OBSERVERS,
)  # fmt: skip
"""Methods that one line explains, parameters and all."""


@pytest.mark.parametrize("name", [name for name in PUBLIC if not name.endswith(DOCUMENTED_IN_ONE_LINE)])
def test_a_public_function_documents_its_parameters(name: str) -> None:
    parameters = [each for each in inspect.signature(PUBLIC[name]).parameters if each != "self"]
    text = inspect.getdoc(PUBLIC[name]) or ""
    head, _, body = text.partition("\nParameters\n----------\n")
    assert head
    described = re.findall(r"^\*{0,2}(\w+)(?: : [^\n]+)?\n {4}\S", body.partition("\n\n")[0], re.MULTILINE)
    assert described == parameters


def test_the_dozen_public_functions_are_there() -> None:
    assert len(PUBLIC) >= 12


# Examples


def examples(name: str, language: str) -> list[str]:
    """The examples of a page in a language."""
    text = (ROOT / "docs" / "reference" / name).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_example_config_is_one(tmp_path: Path) -> None:
    (example,) = examples("config.md", "yaml")
    path = tmp_path / "configs" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(example)
    plan = load_plan(path)
    assert plan.run.name == "mine" and plan.pipeline == STAGES


def test_the_example_reads_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (example,) = examples("result.md", "python")
    verdict = {name: name for name in result.schema()["$defs"]["BudgetMet"]["required"]}
    folder = tmp_path / "artifacts" / "digits"
    folder.mkdir(parents=True)
    (folder / "result.json").write_text(json.dumps({"verdict": verdict}))
    monkeypatch.chdir(tmp_path)
    exec(example, {})
    assert capsys.readouterr().out == "met winner p50_ms\n"


def test_the_example_answers_a_picture(
    bundles: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    example, _ = examples("python.md", "python")
    shutil.copy(bundles["tflite"], tmp_path / "digits-tflite-1.0.0.edge.zip")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    np.save("sample.npy", samples(1)[0])
    exec(example, {})
    assert capsys.readouterr().out.split()[0] in LABELS
