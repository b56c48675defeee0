"""Format the options of `--help`: a switch takes no value, so no type is shown beside it."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup


class PlainSwitchCommand(TyperCommand):
    """A command whose help shows switches without `<bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the base class, with switches that show no type."""
        return _without_switch_types(super().get_params(ctx))


class PlainSwitchGroup(TyperGroup):
    """A group of commands whose help shows switches without `<bool>`."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the base class, with switches that show no type."""
        return _without_switch_types(super().get_params(ctx))


def hide_switch_types(app: typer.Typer) -> None:
    """Let the help of every command of `app` show switches without a type.

    Call it after all commands are registered.
    """
    app.info.cls = PlainSwitchGroup
    for command in app.registered_commands:
        command.cls = PlainSwitchCommand


def _without_switch_types(options: list[Any]) -> list[Any]:
    for option in options:
        if getattr(option, "is_flag", False):
            option.metavar = ""
    return options
