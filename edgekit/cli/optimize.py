"""The command `edgekit optimize`: from a model file and labelled data to a bundle for each target."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edgekit.cli.exit_codes import errors_as_exit_codes
from edgekit.core import yaml_file
from edgekit.core.config import suggest
from edgekit.core.errors import BudgetMissed, ConfigError
from edgekit.core.strict import TARGETS

if TYPE_CHECKING:
    from edgekit.cli.init import ModelOptions

DEFAULT_NAME = "model"
"""Name of the run if the name of the model file has no Latin letters or digits."""


def optimize(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A model: .onnx, .tflite, .keras, .pt2 or OpenVINO .xml.")
    ],
    data: Annotated[str, typer.Option(metavar="PATH", help="Labelled data, as for `edgekit init`.")],
    targets: Annotated[
        str | None, typer.Option(metavar="LIST", help="tflite,openvino,onnx; by default all that are possible.")
    ] = None,
    drop: Annotated[
        str | None, typer.Option(metavar="PP", help="Accuracy that may be lost, such as 1pp, in percentage points.")
    ] = None,
    preprocess: Annotated[
        str | None, typer.Option(metavar="NAME", help="How its input is scaled, if the data do not decide.")
    ] = None,
    head: Annotated[
        str | None, typer.Option(metavar="NAME", help="Detector whose outputs it has, such as yolov8, if undecided.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run; by default the file's name.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the config, the notebook and the runs.")] = Path("."),
) -> None:
    """Write a config for a model file and run it: a bundle for each target, and what it costs in accuracy.

    This is `edgekit init NAME --model FILE --data PATH` and `edgekit run NAME.yaml` in one step. If NAME.yaml is there,
    it is used as it is, so that a second call continues after an interruption.

    Exit codes: 0: done; 2: options or config; 3: budget missed; 4: data or model; 5: conversion; 6: a stage died; 7:
    resources.
    """
    with errors_as_exit_codes():
        from edgekit.cli.init import ModelOptions, create_project
        from edgekit.cli.run import show_result
        from edgekit.workbook.plan import load_plan
        from edgekit.workbook.run import import_in_background
        from edgekit.workbook.run import run as run_plan

        run_name = name or re.sub(r"[^a-z0-9_-]+", "-", Path(file).stem.lower()).strip("-_")[:64] or DEFAULT_NAME
        config = out / f"{run_name}.yaml"
        options = ModelOptions(file, preprocess, _drop_pp(drop), _targets(targets), head)
        is_new = not config.exists()
        if not is_new:
            _check_existing(config, options, data)
            print(f"using  {config}, which is already there")
        else:
            import_in_background()
            create_project(run_name, None, data, out, force=False, say=print, model=options)
        plan = load_plan(config, [], checked_before=True)
        outcome = run_plan(plan, out / "artifacts", checked=is_new)
        show_result(outcome, out / "artifacts" / plan.run.name)
        if not outcome.result["verdict"]["met"]:
            raise typer.Exit(BudgetMissed.exit_code)


def _check_existing(config: Path, options: ModelOptions, data: str) -> None:
    """Raise ConfigError if an existing config is for another model or other data, or has other options."""
    from edgekit.core.paths import expand_path

    values = yaml_file.read(config)
    paths = {"FILE": ("model", "source", options.path), "--data": ("data", "path", data)}
    for option, (section, key, given) in paths.items():
        written = (values.get(section) or {}).get(key)
        resolved = Path(expand_path(given, option)).resolve()
        if not isinstance(written, str) or (config.parent / expand_path(written, key)).resolve() != resolved:
            raise ConfigError(f"{option}: {config} is already there and has {key}: {written}; give another --name")
    head = (values.get("model") or {}).get("head")
    if options.head not in (None, head):
        raise ConfigError(
            f"--head: {config} is already there and has {head or 'none'}; change it there, or give another --name"
        )
    drop_pp, targets = (values.get("budget") or {}).get("accuracy_drop_pp"), values.get("targets")
    if options.drop_pp is not None and options.drop_pp != drop_pp:
        raise ConfigError(
            f"--drop: {config} is already there and has {drop_pp}; change it there, or give another --name"
        )
    if options.targets and list(options.targets) != targets:
        raise ConfigError(
            f"--targets: {config} is already there and has {targets}; change it there, or give another --name"
        )


def _drop_pp(text: str | None) -> float | None:
    """Return percentage points from a text such as 1pp, 1.5 or 2%."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:pp|%)?", text.strip().lower())
    if match is None or not 0 < float(match[1]) <= 100:
        raise ConfigError(f"--drop {text}: not a number of percentage points above 0, such as 1pp")
    return float(match[1])


def _targets(text: str | None) -> tuple[str, ...]:
    names = tuple(filter(None, (each.strip() for each in (text or "").split(","))))
    for each in names:
        if each not in TARGETS:
            raise ConfigError(f"--targets {text}: no such target {each!r}, {suggest(each, TARGETS)}")
    return names
