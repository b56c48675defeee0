"""`edgekit export`: bundles for other servers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes


def export(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="triton, ovms, kserve or tensorrt.")],
    bundle: Annotated[
        Path, typer.Argument(metavar="BUNDLE", help="A NAME-TARGET-VERSION.edge.zip, or a folder of them.")
    ],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder to make; an earlier export is replaced.")],
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="triton, kserve: native, or python for the bundle's own preprocess."),
    ] = None,
    storage_uri: Annotated[
        str | None, typer.Option(metavar="URI", help="kserve: where the repository will lie, such as s3://bucket/x.")
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="NAME", help="kserve: the image that runs edgekit's own server.")
    ] = None,
) -> None:
    """Prepare bundles for another server: a model repository, manifests, or files for a compiler.

    Exit codes: 2 an option, or the folder is taken; 4 no bundle; 5 the server would answer wrongly or cannot take it.
    """
    with errors_as_exit_codes():
        from edgekit.core.config import suggest
        from edgekit.core.errors import ConfigError
        from edgekit.serve import export as servers

        if server not in servers.names():
            raise ConfigError(f"{server}: no such server, {suggest(server, servers.names())}")
        request = servers.Request(backend, storage_uri, image)
        for line in servers.export(server, bundle, out, request):
            print(line)
        print(f"wrote {out}")
