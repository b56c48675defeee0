"""The help of both command lines, each as a terminal of 80 columns shows it."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import typer
from typer.testing import CliRunner

from edgekit.cli.app import app
from edgekit.runner import cli as runner

PLAIN = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
"""The environment in which help looks the same everywhere."""


def edgekit() -> str:
    """`edgekit --help`, then that of every command."""
    return _sections("edgekit", edgekit_commands(), edgekit_help)


def edgerun() -> str:
    """`edgerun --help`, then that of every command."""
    return _sections("edgerun", edgerun_commands(), edgerun_help)


def edgekit_commands() -> list[str]:
    """The commands of `edgekit`, in the order in which its help lists them; those of a group follow it."""
    return list(_names(typer.main.get_command(app)))


def edgerun_commands() -> list[str]:
    """The commands of `edgerun`, sorted."""
    folders = [folder for package in runner.command_packages() for folder in importlib.import_module(package).__path__]
    found = (module.name for module in pkgutil.iter_modules(folders))
    return sorted(name for name in found if not name.startswith("_"))


def edgekit_help(arguments: Sequence[str]) -> str:
    """What `edgekit ARGUMENTS --help` prints."""
    return _trimmed(CliRunner(env=PLAIN).invoke(app, [*arguments, "--help"], prog_name="edgekit").output)


def edgerun_help(arguments: Sequence[str]) -> str:
    """What `edgerun ARGUMENTS --help` prints."""
    printed = io.StringIO()
    with mock.patch.dict(os.environ, PLAIN), contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        runner.main([*arguments, "--help"])
    return _trimmed(printed.getvalue())


def _names(group: Any, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        yield f"{before}{name}"
        if hasattr(command, "commands"):
            yield from _names(command, f"{before}{name} ")


def _sections(program: str, commands: Sequence[str], helped: Callable[[Sequence[str]], str]) -> str:
    shown = {name: f"```text\n{helped(name.split())}\n```" for name in ["", *commands]}
    return "\n\n".join(f"### {program} {name}\n\n{text}" if name else text for name, text in shown.items())


def _trimmed(text: str) -> str:
    """Without empty lines around it and without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()).strip("\n")
