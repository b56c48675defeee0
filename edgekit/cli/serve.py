"""`edgekit serve`: the runner's command of that name, with the runner's own options and help."""

from __future__ import annotations

from typing import Any

import typer

FORWARDED: dict[str, Any] = {
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    "add_help_option": False,
}
"""How typer has to register it: it parses nothing itself."""


def serve(context: typer.Context) -> None:
    """Serve bundles over HTTP, by the Open Inference Protocol v2. The same as `edgerun serve`."""
    from edgekit.runner.cli import main as run_on_device

    raise typer.Exit(run_on_device(["serve", *context.args]))
