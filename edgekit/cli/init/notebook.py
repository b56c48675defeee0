"""The notebook that `edgekit init` writes: it shows the data, profiles a network on them and names the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Cell = tuple[str, str, str]
"""The id of a cell, `markdown` or `code`, and its source."""

TITLE = """# {name} · a first look

**Question.** What is in these data, and what does one call of a plain network on them cost?

*Reads* the data and the network that `{name}.yaml` names: {words}. *Writes* `artifacts/{name}/profile/` beside that \
config: a baseline, trained here, and where its time goes.

`edgekit init` wrote this notebook and the config, and you may change both. Run a cell with Shift-Enter. After a \
change of the config, run the notebook again from the top."""
PARAMETERS = """config: str = {config}  # the run: data, model, preprocess, budget
out: str = "artifacts"  # folder that holds the runs
settings: str = ""  # any other options of the config, each written as after --set, with spaces between"""
OPEN_TEXT = """Opening the stage checks the config and reads the data. The data is split into four disjoint parts. The \
test part stays closed until the end of a run, so that no decision rests on it.

The strip shows the seven stages of a run, of which this notebook runs the first. Below it, *All options* unfolds a \
table of the options of this stage with their values."""
OPEN = """from pathlib import Path

from edgekit.core import tasks
from edgekit.report import checks
from edgekit.report.sections import machine, pipeline, profile, samples
from edgekit.workbook.stage import find_config, open_stage

# if the notebook was moved or copied, the config beside it is used
if Path(Path(config).name).is_file() or not Path(config).is_file():
    config = str(find_config(Path(config).name))
stage = open_stage("profile", globals())
display(pipeline.figure(pipeline.steps_so_far(stage.source, stage.plan.pipeline)))
stage"""
SAMPLES_TEXT = """## The data

These are samples of the train split, before any preprocessing. Look for what should not be there: wrong labels, \
empty samples, or a detail that gives the answer away."""
COUNT_TEXT = """A rare class is learned badly and measured worse. If a class has only ten validation samples, each of \
them is a tenth of its accuracy."""
COUNT = """task = tasks.load_task(stage.data.task)
accuracy, constant_answer = task.constant_answer(stage.data.validation.y)
print(f"{task.METRIC_TEXT}; {constant_answer} would give {accuracy:.1%}")
display(samples.splits_table(stage.data))
samples.notes_table(stage.data)"""
RUN_TEXT = """## Profile

The next cell trains the baseline for `profile.epochs`. It then measures the accuracy on the validation split, the \
size, and where the time of one call goes. The accuracy should be well above that of always giving the same answer. \
If it is not, look at the samples again, then train longer.

A line under the diagnosis says whether the measurement was noisy. If nothing that the result depends on has changed, \
the sealed result is reused."""
RUN = """artifact = stage.run()
display(profile.table(artifact))
print(artifact.metrics["diagnosis"]["text"])
print(machine.disturbance_text(artifact))
profile.steps_table(artifact)"""
NEXT_TEXT = """## Next

A full run distils a smaller student, prunes it and quantizes it. It then converts everything to TFLite, \
OpenVINO and ONNX, measures all files together, and packs the winners. `edgekit run` starts from the baseline that \
this notebook has made.

Set `budget.latency_p50_ms` and `budget.size_bytes` in the config to the limits of your device. Then run these \
commands in the folder of the config:"""
NEXT = """checks.files_match(artifact)
checks.budget_possible(stage.plan.run.budget, len(stage.data.validation), stage.data.task)
print(f"edgekit run {stage.plan.path.name} --dry-run    # the plan, checked")
print(f"edgekit run {stage.plan.path.name}              # everything, to a report.html in {stage.folder}")"""


def notebook_text(name: str, config: Path, description: str, kind: str) -> str:
    """Return the notebook as JSON without outputs. The result depends only on the arguments."""
    first_look = "samples.table(stage.data)" if kind == "vector" else "samples.figure(stage.data)"
    cells: list[Cell] = [
        ("title", "markdown", TITLE.format(name=name, words=description)),
        ("parameters", "code", PARAMETERS.format(config=json.dumps(str(config), ensure_ascii=False))),
        ("open-text", "markdown", OPEN_TEXT),
        ("open", "code", OPEN),
        ("samples-text", "markdown", SAMPLES_TEXT),
        ("samples", "code", first_look),
        ("count-text", "markdown", COUNT_TEXT),
        ("count", "code", COUNT),
        ("run-text", "markdown", RUN_TEXT),
        ("run", "code", RUN),
        ("next-text", "markdown", NEXT_TEXT),
        ("next", "code", NEXT),
    ]
    notebook = {
        "cells": [_cell(*cell) for cell in cells],
        "metadata": {
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def _cell(cell_id: str, kind: str, source: str) -> dict[str, Any]:
    fields = {"id": cell_id, "metadata": {}, "source": source.splitlines(keepends=True)}
    if kind == "markdown":
        return {"cell_type": kind, **fields}
    tags = {"tags": ["parameters"]} if cell_id == "parameters" else {}
    return {"cell_type": kind, "execution_count": None, **fields, "metadata": tags, "outputs": []}
