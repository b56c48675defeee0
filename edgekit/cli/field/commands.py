"""The commands `edgekit field pack`, `edgekit field report` and `edgekit field board-table`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.help import hide_switch_types
from edgekit.core.errors import ConfigError, DataError

RETAINED = "existing files are unchanged"
app = typer.Typer(
    no_args_is_help=True, help="Bring kept samples and field reports from devices back to the workstation."
)


@app.command()
def pack(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that `edgerun predict --keep FOLDER` filled.")
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT.npz", help="File to write; the table of labels is written beside it.")
    ],
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="CSV",
            help="OUT.csv of an earlier `pack`, with corrected labels. Only samples that have a label are packed.",
        ),
    ] = None,
    with_: Annotated[
        Path | None,
        typer.Option(
            "--with", metavar="NPZ", help="The data that the model was trained on; the kept samples are appended to it."
        ),
    ] = None,
    files: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the samples as files, too: PNG, WAV or .npy.")
    ] = None,
    add_class: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A new class. Repeat for more.")] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Pack only the samples of this bundle, given by the first digits of its identity. Needed if the "
            "folder holds samples of several bundles.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite OUT.npz and the table.")] = False,
) -> None:
    """Pack kept samples for `edgekit init --data OUT.npz`, and write OUT.csv, the table to label them in.

    Without --labels, the labels are the model's own answers, and a run that trains on them reports this.

    Exit codes: 0: packed; 2: an output file already exists; 4: the samples or labels do not fit.
    """
    with errors_as_exit_codes(RETAINED):
        from edgekit.cli.field import packing as command

        request = command.PackRequest(folder, out, labels, with_, files, tuple(add_class or ()), bundle, force)
        command.run(request, print)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Field reports, one .json file each.")],
    out: Annotated[Path, typer.Option(metavar="IPYNB", help="Executed notebook to write.")] = Path("field.ipynb"),
) -> None:
    """Execute notebook 08 on a folder of field reports, and say what to do next.

    The earliest report is called *then*; the latest report of the same bundle is called *now*.

    Exit codes: 0: written; 4: no field reports; 6: a cell of the notebook failed.
    """
    with errors_as_exit_codes(RETAINED):
        from edgekit.report.field import advice, history
        from edgekit.report.field.reports import folder as read_folder
        from edgekit.workbook import notebook

        if out.suffix != ".ipynb":
            raise ConfigError(f"--out {out}: name a file that ends in .ipynb")
        reports = read_folder(folder)  # read it first, because its errors are clearer than a notebook's traceback
        field_history = history.of(reports)
        notebook.execute_side_notebook(notebook.FIELD_NOTEBOOK, {"reports": str(folder.resolve())}, out)
        then, now = field_history.then.name, field_history.now.name
        print(f"reports     {len(field_history.reports)}, earliest (then): {then}, latest (now): {now}")
        print(f"wrote       {out}")
        for step in advice.steps(field_history.now, field_history.comparison):
            print(f"next        {step.action}: {step.why}. To do: {step.how}.")


@app.command("board-table")
def board_table(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Board reports, one .json file each.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.md", help="File to write. Without it, the page is printed.")
    ] = None,
) -> None:
    """Make a table of latencies from the board reports that `edgerun bench --report` wrote on boards.

    Reports are refused that were edited, disturbed or throttled, that failed the self-test, whose figures do not
    follow from their samples, or whose file differed in speed from itself. Of several reports about the same bundle,
    interpreter and board, the least disturbed is used.

    Exit codes: 0: all reports are in the table; 4: reports were refused; the table has the others.
    """
    with errors_as_exit_codes(RETAINED):
        from edgekit.report.field import board_reports, board_table
        from edgekit.runner.files import write_atomically

        reports, refusals = board_reports.read_folder(folder)
        if reports and out is None:
            print(board_table.page(reports), end="")
        elif reports and out is not None:
            write_atomically(out, board_table.page(reports).encode())
            print(f"wrote       {out}: {len(reports)} reports")
        for refusal in refusals:
            print(f"edgekit: refused: {refusal}", file=sys.stderr)
        if refusals:
            raise typer.Exit(DataError.exit_code)


hide_switch_types(app)
