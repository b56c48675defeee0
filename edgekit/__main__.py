"""Entry of the `edgekit` command; says what to install where only the runner is there."""

from __future__ import annotations

import os
import sys

from edgekit.runner.cli import ensure_standard_streams
from edgekit.runner.native_stderr import duplicate_stderr


def main() -> None:
    """Run the command line of the workbook."""
    os.close(duplicate_stderr())  # so that no file of the run is taken for it where it was closed
    ensure_standard_streams()
    try:
        from edgekit.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("edgekit"):
            raise
        print(
            f"edgekit: the workbook is not installed here (no module {error.name!r}).\n"
            "For the workbook, on Python 3.11 to 3.13: pip install 'WHEEL[workbook]', where WHEEL is the path of "
            "edgekit's wheel, or pip install '.[workbook]' in a clone. For running a bundle: edgerun --help",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app()


if __name__ == "__main__":
    main()
