"""Files of all shapes, made once, and timed in the same rounds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from edgekit.core.errors import ConfigError, ModelError
from edgekit.core.hashing import write_json
from edgekit.data import Data
from edgekit.measure import lane
from edgekit.measure.latency import Converted, convert_plainly
from edgekit.models import store
from edgekit.models.cost import cost
from edgekit.runner.measure import conditions
from edgekit.runner.measure.bench import interleaved, machine
from edgekit.runner.measure.intervals import round_p50s
from edgekit.targets import evaluate
from edgekit.targets.jobs import Files, Job, Step

FILES, TIMES = "files.json", "times.json"
PRECISIONS = ("int8", "fp32")
SHARES = (0.75, 0.5)
"""What is left of the channels of untrained networks."""
SAMPLES = 64


def shapes(folder: Path, spec: store.ModelSpec, widths: Sequence[int]) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, network and the name of what it is compared with: trained ones of `folder`, then untrained ones."""
    for path in sorted((folder / "networks").glob("*")):
        if "new weights" not in path.name:  # it has the shape, and so the time, of what was fine-tuned
            yield path.name, store.load(path)[0], "student"
    yield from _untrained(spec, widths)


def check(spec: store.ModelSpec, widths: Sequence[int]) -> None:
    """ConfigError where there is no such network of one of these widths."""
    try:
        for _ in _untrained(spec, widths):
            pass
    except ModelError as error:
        wanted = " ".join(map(str, widths))
        raise ConfigError(
            f"--widths: got {wanted}, and {' '.join(str(error).split())}; write --widths with no number for none"
        ) from None


def _untrained(spec: store.ModelSpec, widths: Sequence[int]) -> Iterator[tuple[str, nn.Module, str]]:
    for width in widths:
        for share in (1.0, *SHARES):
            narrow = {**spec.kwargs, "width": math.ceil(width * share)}
            yield f"width {narrow['width']} of {width}", store.build(_of(spec, narrow)), f"width {width} of {width}"


def convert(folder: Path, spec: store.ModelSpec, data: Data, widths: Sequence[int], targets: Sequence[str]) -> None:
    """Leave all files in `files/`, and in files.json what they are."""
    scratch = folder / "files"
    scratch.mkdir(exist_ok=True)
    inputs = evaluate.network_inputs(evaluate.spread(data.calibration, SAMPLES), spec.preprocess)
    places, about = {}, {}
    for number, (name, module, to) in enumerate(shapes(folder, spec, widths)):
        places[name] = scratch / f"network{number}"
        width = int(name.split()[1]) if name.startswith("width ") else None
        described = _of(spec, {**spec.kwargs, "width": width}) if width else spec
        store.save(places[name], module, described)
        spent = cost(module, spec.input_shape, spec.takes_ids)
        about[name] = {"to": to, "macs": spent.macs, "parameters": spent.parameters}
    made, lost = convert_plainly(places, inputs, targets, PRECISIONS, scratch, 3600.0)
    for one in lost:
        print(f"not converted: {one.describe()}")
    files = [
        {"model": one.job.model, "target": one.job.target, "precision": one.step.precision, "folder": one.step.out.name,
         "files": one.files.to_json(), "bytes": one.bytes}
        for one in made.values()
    ]  # fmt: skip
    np.save(scratch / "sample.npy", inputs[:1], allow_pickle=False)
    write_json(folder / FILES, {"about": about, "files": files})


def time_all(folder: Path, rounds: int, calls: int) -> None:
    """Time every file in turns; leave each round's p50 in times.json."""
    found = json.loads((folder / FILES).read_text())
    x = np.load(folder / "files" / "sample.npy", allow_pickle=False)
    called = {row["folder"]: _opened(row, folder / "files").call(x) for row in found["files"]}
    with lane.measuring(), conditions.Watch() as watch:
        samples = interleaved(called, rounds, calls, 5, on_round=watch.sample)
    for row in found["files"]:
        p50s_ms = round_p50s(samples[row["folder"]], rounds)
        row["round_p50s_ms"] = [float(value) for value in p50s_ms]
    noise = float(np.median([conditions.spread(row["round_p50s_ms"]) for row in found["files"]]))
    seen = {**machine(), "rounds": rounds, "calls": calls, **conditions.to_record(watch.result(noise))}
    write_json(folder / TIMES, {**found, "conditions": seen})


def _opened(row: dict[str, Any], scratch: Path) -> Converted:
    step = Step(row["precision"], "float", scratch, scratch / row["folder"])
    return Converted(step, Job(row["model"], row["target"], scratch, (step,)), Files.from_json(row["files"]))


def _of(spec: store.ModelSpec, kwargs: dict[str, Any]) -> store.ModelSpec:
    return spec.model_copy(update={"kwargs": kwargs})
