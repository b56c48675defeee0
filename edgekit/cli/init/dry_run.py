"""Check a config before it is written, with the functions that a run uses to read it and its data."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.cli.init import networks
from edgekit.cli.init.config import Draft, scalar
from edgekit.cli.init.findings import Findings
from edgekit.cli.init.sizes import Sizes
from edgekit.core.errors import DataError
from edgekit.data import Data
from edgekit.data import load as load_data
from edgekit.data.splits import quarter
from edgekit.runner.preprocess.steps import check as check_steps
from edgekit.training import positives
from edgekit.workbook.plan import Plan, load_plan

LEAST_TRAIN = 2
PROGRESS = 100
"""Samples between two words of how far the reading is."""


def draft(name: str, task: str, found: Findings, written: str | None) -> Draft:
    """The config for these data, which have been read and split as it says; `written` is the path as it stands there.

    They are read twice: only their number says how many of them may calibrate, and what is measured must be measured
    on the train split that this leaves.
    """
    section = {**found.section}
    section |= {f"{split}_fraction": 0.2 for split in ("validation", "test") if split not in found.splits}
    data = _read(name, task, {**section, "calibration_samples": 1, "overlap": "drop"})
    section["calibration_samples"] = quarter(len(data.train) + len(data.calibration))
    if any(note.startswith("overlap:") for note in data.notes):
        section["overlap"] = "drop"
    del data
    data = _read(name, task, section)
    if section["source"] == "npz":
        found = replace(found, words=f"{found.words} of {_shapes(data)}")
    if len(data.train) < LEAST_TRAIN:
        left = f"{len(data.train)} sample{'' if len(data.train) == 1 else 's'}"
        more = "more normal samples" if task == "anomaly" else "more samples"
        raise DataError(f"--data: {left} would be left to train on, besides calibration and validation; give {more}")
    splits = (data.train, data.calibration, data.validation, data.test)
    if written is not None:
        section["path"] = written
    least = positives.least(data.train.y) if task == "embedding" else 2
    return Draft(name, task, found, section, data, replace(Sizes(*map(len, splits)), least_batch=least))


def check(text: str, section: dict[str, Any], data: Data) -> None:
    """Every key and every combination in it, and the steps against the samples; the error of a run where it fails."""
    plan = _plan(text, [f"data.path={scalar(section['path'])}"] if "path" in section else [])
    check_steps(plan.run.preprocess, data.raw_shape, data.raw_dtype)


def _read(name: str, task: str, section: dict[str, Any]) -> Data:
    lines = [
        f"name: {scalar(name)}",
        f"task: {task}",
        f"data: {scalar(section)}",
        f"model: {{builder: {networks.ANY}}}",
    ]
    return load_data(_plan("\n".join(lines), [], known=True).data, _progress)


def _shapes(data: Data) -> str:
    """What arrays turned out to hold: only their source knows."""
    if data.tensors:
        return data.sample_in_words
    shape = "×".join(map(str, data.raw_shape))
    called = {"image": "pictures of", "vector": "vectors of", "window": "windows of"}
    return f"{called.get(data.kind, data.kind)} {shape}{' numbers' if data.kind == 'vector' else ''}"


def _plan(text: str, settings: list[str], known: bool = False) -> Plan:
    with tempfile.TemporaryDirectory(prefix="edgekit-init-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return load_plan(path, settings, known=known)


def _progress(done: int, total: int) -> None:
    if sys.stderr.isatty() and (done % PROGRESS == 0 or done == total):
        print(f"\rread {done:,} of {total:,}", end="\n" if done == total else "", file=sys.stderr, flush=True)
