"""The command `edgekit export`: bundles for other servers, and files for monitoring with Prometheus and Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core.errors import ConfigError


def export(
    server: Annotated[
        str,
        typer.Argument(metavar="SERVER", help="triton, ovms, kserve, tensorrt, frigate, eim; or prometheus, grafana."),
    ],
    bundle: Annotated[
        Path | None,
        typer.Argument(
            metavar="BUNDLE|OUT",
            help="A NAME-TARGET-VERSION.edge.zip, or a folder of them; for prometheus and grafana the folder to make.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder to make; an earlier export is replaced.")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="triton, kserve: native, or python for the bundle's own preprocess."),
    ] = None,
    storage_uri: Annotated[
        str | None,
        typer.Option(metavar="URI", help="kserve: where the repository will be stored, such as s3://bucket/x."),
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="NAME", help="kserve: the image that runs edgekit's own server.")
    ] = None,
    slo_p99: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="prometheus, grafana: time within which 99 % of the requests must be answered [100ms]."
        ),
    ] = None,
    availability: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT", help="prometheus, grafana: percentage of the requests that must be answered [99.9]."
        ),
    ] = None,
    scrape: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="prometheus: a server's admin port; by default localhost:8002."),
    ] = None,
    docs: Annotated[
        str | None,
        typer.Option(metavar="URL", help="prometheus: address of your copy of the page on alerts, for their links."),
    ] = None,
) -> None:
    """Prepare bundles for another server, or rules and a dashboard for monitoring `edgekit serve`.

    Exit codes: 2: a wrong option, or the folder exists; 4: no bundle; 5: the server cannot take the bundle, or would
    answer wrongly.
    """
    with errors_as_exit_codes():
        from edgekit.core.config import suggest
        from edgekit.serve import export as servers

        if server not in servers.server_names():
            raise ConfigError(f"{server}: no such server, {suggest(server, servers.server_names())}")
        bundle, folder = _paths(server, bundle, out, servers.takes_bundles(server))
        request = servers.ExportRequest(
            backend, storage_uri, image, slo_p99, availability, tuple(scrape) if scrape else None, docs
        )
        for line in servers.export(server, bundle, folder, request):
            print(line)
        print(f"wrote {folder}")


def _paths(server: str, argument: Path | None, out: Path | None, takes_bundles: bool) -> tuple[Path | None, Path]:
    """Return the bundles, if the server takes any, and the folder to create."""
    if takes_bundles:
        if argument is None:
            raise ConfigError(f"BUNDLE: is missing; {server} takes a bundle, or a folder of bundles")
        if out is None:
            raise ConfigError(f"--out: is missing; name the folder to make, for example --out for-{server}")
        return argument, out
    if argument is not None and out is not None:
        raise ConfigError(f"{argument}: {server} takes no bundle; name only the folder: edgekit export {server} {out}")
    folder = argument or out
    if folder is None:
        raise ConfigError(f"OUT: is missing; name the folder to make, for example edgekit export {server} monitoring")
    return None, folder
