"""Commands that are named within a sentence: on a page, in a notebook, in a docstring. What they call is there."""

from __future__ import annotations

import argparse
import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import tomllib
import typer
import yaml

from edgekit.cli.app import app
from tests.docs.pages import ROOT, all_pages, modules, name, notebooks, prose
from tests.docs.test_commands import parts

PROGRAM = r"(?:[\w./-]*/)?(?:edgekit|edgerun(?:\.pyz)?|make|pip|python3?|pytest|source|pre-commit|ffmpeg|rpicam-vid)"
INLINE = re.compile(rf"`({PROGRAM} [^`]*)`|^ {{4}}({PROGRAM} .+)$", re.MULTILINE)
"""In backticks; in a docstring also on a line of its own, set in."""
TARGET = re.compile(r"^([a-z0-9]+):", re.MULTILINE)
NOT_HERE = ("ffmpeg", "rpicam-vid")
"""Programs of others, which need a film or a camera: tests/runner/inputs/test_stream.py pipes frames in as they do."""
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def named(text: str) -> list[str]:
    """The commands in a text."""
    return ["".join(found) for found in INLINE.findall(text)]


PLACES = [path for path in (*all_pages(), *notebooks(), *modules()) if named(prose(path))]


@pytest.mark.parametrize("path", PLACES, ids=name)
def test_what_is_named_in_passing_exists(path: Path) -> None:
    """`make aa`, `edgekit load --max-rate`, `edgerun bench --minutes`: the command, and its long options."""
    for command in named(prose(path)):
        for words in parts(command):
            check(words)


def check(words: list[str]) -> None:
    """AssertionError, or an error of what looks it up, for a command that is not there."""
    program, rest = Path(words[0]).name, words[1:]
    if program == "make":
        assert rest[0] in TARGET.findall((ROOT / "Makefile").read_text()), words
    elif program == "edgekit":
        command: Any = typer.main.get_command(app)
        while hasattr(command, "commands") and rest:
            command, *rest = command.commands[rest[0]], *rest[1:]
        _options(words, [option for each in command.params for option in each.opts])
    elif program.startswith("edgerun") and rest:
        parser = argparse.ArgumentParser()
        importlib.import_module(f"edgekit.runner.commands.{rest[0]}").arguments(parser)
        _options(words, list(parser._option_string_actions))
    elif program.startswith("python"):
        assert rest == ["edgerun.pyz"] or (rest[0] == "-m" and importlib.util.find_spec(rest[1])), words
    elif program == "pip":
        for extra in re.findall(r"\.\[([\w,]+)\]", " ".join(rest)):
            assert set(extra.split(",")) <= set(PYPROJECT["optional-dependencies"]), words
    elif program == "source":
        assert rest == [".venv/bin/activate"] and re.search(r"^VENV \?= \.venv$", (ROOT / "Makefile").read_text(), re.M)
    elif program == "pre-commit":
        assert "pre-commit" in PYPROJECT["optional-dependencies"]["dev"]
        assert rest == ["install"] and yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    else:
        assert program in NOT_HERE, f"{shlex.join(words)}: say how its words are checked"


def _options(words: list[str], known: list[str]) -> None:
    assert not [word for word in words if word.startswith("--") and word.split("=")[0] not in known], words


def test_commands_are_found_wherever_they_are_named() -> None:
    places = {name(path): named(prose(path)) for path in PLACES}
    assert "edgerun.pyz verify" in places["notebooks/07_bundle.ipynb"]
    assert "source .venv/bin/activate && pre-commit install" in places["CONTRIBUTING.md"]
    assert "pip install '.[workbook]'" in places["docs/reference/python.md"]
    assert "make nightly RESUME=1" in places["tests/README.md"]
    assert len(places["edgekit/runner/inputs/stream.py"]) == 2


@pytest.mark.parametrize(
    "command",
    [
        "make nothing",
        "edgekit run --nothing",
        "edgerun.pyz nothing",
        "python -m edgekit.nothing",
        "pip install '.[no]'",
    ],
)
def test_and_one_that_is_not_there_is_seen(command: str) -> None:
    with pytest.raises((AssertionError, KeyError, ImportError)):
        for words in parts(command):
            check(words)
