"""Exit codes, from the exception classes that carry them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType

from docs.generate.tables import code, table
from edgekit.cli import exit_codes
from edgekit.core import errors
from edgekit.runner import cli as runner
from edgekit.runner import errors as runner_errors

HEADER = ("exit code", "meaning", "exception")
DONE = "The command did what was asked."
INTERRUPTED = "Ctrl-C stopped the command."
BROKEN_PIPE = "The program that read the output closed it, as `head` does."
SIGNALS = {
    "edgekit": {
        exit_codes.INTERRUPTED: f"{INTERRUPTED} Finished stages are kept.",
        exit_codes.BROKEN_PIPE: BROKEN_PIPE,
        exit_codes.TERMINATED: "SIGTERM stopped the command. Finished stages are kept.",
    },
    "edgerun": {
        runner.INTERRUPTED: INTERRUPTED,
        runner.BROKEN_PIPE: BROKEN_PIPE,
        runner.TERMINATED: "SIGTERM stopped `predict`. The files of `--metrics`, `--report` and `--keep` are written.",
    },
}
PLAIN = {
    "edgekit": {},
    "edgerun": {
        2: "The command line is wrong.",
    },
}
"""Codes that no exception class carries."""


def edgekit() -> str:
    """The table of `edgekit`."""
    return _table("edgekit", errors)


def edgerun() -> str:
    """The table of `edgerun`."""
    return _table("edgerun", runner_errors)


def short(program: str) -> str:
    """The table of `edgekit` or `edgerun` without the exceptions, for pages about scripts."""
    rows = _rows(program, errors if program == "edgekit" else runner_errors)
    return table(HEADER[:2], [(code(number), rows[number][0]) for number in sorted(rows)])


def meanings(module: ModuleType) -> dict[int, dict[str, str]]:
    """By exit code, the exception classes of a module and the first sentence of each one's docstring."""
    found: dict[int, dict[str, str]] = {}
    for name, kind in vars(module).items():
        if not inspect.isclass(kind) or not issubclass(kind, Exception) or kind.__module__ != module.__name__:
            continue
        if not any(each.__module__ == module.__name__ for each in kind.__subclasses__()):
            found.setdefault(inspect.getattr_static(kind, "exit_code"), {})[name] = (inspect.getdoc(kind) or "").split(
                "\n\n"
            )[0]
    return dict(sorted(found.items()))


def _table(program: str, module: ModuleType) -> str:
    rows = _rows(program, module)
    return table(HEADER, [(code(number), *rows[number]) for number in sorted(rows)])


def _rows(program: str, module: ModuleType) -> dict[int, tuple[str, str]]:
    """By exit code, its meaning and the exceptions that carry it."""
    rows = {0: (DONE, "–")}
    plain: Mapping[int, str] = {**PLAIN[program], **SIGNALS[program]}
    rows |= {number: (text, "–") for number, text in plain.items()}
    for number, classes in meanings(module).items():
        rows[number] = (" Or: ".join(classes.values()), ", ".join(code(name) for name in classes))
    return rows
