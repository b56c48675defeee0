"""The options of the command `edgekit init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core.errors import ConfigError
from edgekit.core.tasks import TASKS, Task


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the run and of the two files, for example doorbell.")
    ],
    task: Annotated[
        Task | None,
        typer.Option(
            metavar="TASK",
            help=f"{', '.join(TASKS)}; by default detection for boxes, segmentation for masks, otherwise "
            "classification.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="An .npz, .csv, .tsv or .wav, or a folder or zip of pictures, WAV, CSV or texts; by default digits.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="A trained model to use as it is; the config fits its input.", show_default=False
        ),
    ] = None,
    preprocess: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="How its input is scaled, if the data do not decide: '0 to 1, RGB'.",
            show_default=False,
        ),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Detector whose outputs it has, such as yolov8, if the file and the data do not decide.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Inspect data and write NAME.yaml and NAME.ipynb, a config and a notebook that run unmodified.

    \b
    PATH can be:
      data.npz        x_train, y_train and optionally x_validation, y_validation,
                      x_test, y_test, classes
      a folder, zip   of pictures, SPLIT/CLASS/*.jpg or .png: train/cat/0001.jpg
      a folder, zip   of sounds, SPLIT/CLASS/*.wav: train/yes/0001.wav
      a folder, zip   of recordings, SPLIT/CLASS/*.csv: train/walking/0001.csv
      data.csv        a row for each sample, features and a label
      labels.csv      file,label of pictures or sounds beside it
      rec.wav         with its label track rec.txt: start, end, label
      a folder, zip   of texts, SPLIT/CLASS/*.txt: train/spam/0001.txt
      a .tsv or .csv  with a column of texts and one of classes
      a folder, zip   of pictures with boxes, as Pascal VOC, COCO or YOLO has them
      a folder, zip   of pictures with masks, images/SPLIT/*.jpg and masks/SPLIT/*.png
    SPLIT is train, validation or test; only train is needed.

    Exit codes: 0: written; 2: a name or a task that does not fit, or existing files; 4: data that cannot be used.
    """
    with errors_as_exit_codes():
        from edgekit.cli.init import ModelOptions, create_project

        for option, value in (("--preprocess", preprocess), ("--head", head)):
            if value is not None and model is None:
                raise ConfigError(f"{option}: belongs to --model; name the model file too")
        options = ModelOptions(model, preprocess, head=head) if model is not None else None
        config = create_project(name, task, data, out, force=force, say=print, model=options)
        notebook = config.with_suffix(".ipynb").name
        print(f"next   edgekit run {config} --dry-run, then edgekit run {config}; or open {notebook} in JupyterLab")
