"""The commands `edgekit cache check` and `edgekit cache prune` for shared caches of stages."""

from __future__ import annotations

from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core.errors import TrustError

app = typer.Typer(no_args_is_help=True, help="Check a shared cache of stages, and free space in it.")
Url = Annotated[str, typer.Argument(metavar="URL", help="A folder, s3://, gs:// or az://.")]
MAX_DAMAGE_LINES = 20
"""Largest number of damaged objects that are listed."""


@app.command()
def check(
    url: Url,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove damaged objects and entries; later runs compute them again.")
    ] = False,
) -> None:
    """Hash every object of a cache again and follow every entry.

    Exit codes: 0: intact, or all damage was removed; 7: the store failed; 8: something is damaged.
    """
    with errors_as_exit_codes():
        from edgekit.workbook.shared_cache import maintenance, open_cache

        report = maintenance.check(open_cache(url), remove)
        for path, fault in sorted(report.damaged.items())[:MAX_DAMAGE_LINES]:
            print(f"damaged    {path}: {fault.removeprefix(f'{path} ')}")
        print(f"entries    {report.entries:,}")
        print(f"objects    {report.blobs:,}, {report.bytes:,} bytes; {len(report.unused):,} needed by no entry")
        if report.removed:
            print(f"removed    {len(report.removed):,} damaged")
        elif report.damaged:
            raise TrustError(f"{len(report.damaged):,} damaged; remove them with `edgekit cache check {url} --remove`")


@app.command()
def prune(
    url: Url,
    older_than: Annotated[
        float, typer.Option(metavar="DAYS", min=1, help="Remove stages that were stored more than this many days ago.")
    ],
) -> None:
    """Remove old stages from a cache, and the objects that no other stage needs.

    Exit codes: 0: done; 7: the store failed.
    """
    with errors_as_exit_codes():
        from edgekit.workbook.shared_cache import maintenance, open_cache

        report = maintenance.prune(open_cache(url), older_than)
        print(f"removed    {len(report.removed):,} objects, {report.bytes:,} bytes")
        print(f"kept       {report.entries:,} entries, {report.blobs:,} objects")
