"""The command `edgekit reproduce`: rebuild a bundle from its own record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core.errors import TrustError


def reproduce(
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A NAME-TARGET-VERSION.edge.zip.")],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Path on this machine of a file that the config names, as KEY=PATH."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None, typer.Option(metavar="MODULE:FUNCTION", help="Allow this function of your own code to run.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to rebuild in.")] = Path("artifacts/reproduced"),
) -> None:
    """Rebuild a bundle from its own record and compare the two, member by member. Exit code 8 if they differ."""
    with errors_as_exit_codes():
        from edgekit.workbook.reproduce import reproduce as rebuild

        report = rebuild(bundle, set_ or [], out, print, allow or [])
        for line in report.decisions:
            print(f"today: {line}")
        if report.reproduced:
            print(f"reproduced bit for bit: {report.same} members and the manifest are the same; {report.rebuilt}")
            return
        for line in report.members:
            print(f"differs: {line}")
        cause = "; ".join(report.changed_inputs) or "unknown, as all recorded inputs are the same; please report this"
        raise TrustError(
            f"NOT reproduced: {len(report.members)} parts differ, {report.same} are the same. Cause: {cause}"
        )
