"""How `--help` shows options: a switch takes no value, so no type stands beside it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As the base class, the switches without `<bool>`."""
        return _bare(super().get_params(ctx))


class Group(TyperGroup):
    """The commands together."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As the base class, the switches without `<bool>`."""
        return _bare(super().get_params(ctx))


def bare_switches(app: typer.Typer) -> None:
    """Let every command of `app` show its switches so; call it when all are registered."""
    app.info.cls = Group
    for command in app.registered_commands:
        command.cls = Command


def _bare(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options
