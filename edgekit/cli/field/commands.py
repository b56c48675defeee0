"""The commands `edgekit field pack` and `edgekit field report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.cli.help import hide_switch_types
from edgekit.core.errors import ConfigError

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


hide_switch_types(app)
