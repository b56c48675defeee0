"""The child process that `launch` starts to convert networks.

It writes each step that it begins and finishes to JOB.journal, one JSON object on each line, so that its parent knows
at which step it died. If a step fails, the failure is recorded and the next step begins. The process ends instead if
the float model failed, or if the disk or the memory is full.
"""

from __future__ import annotations

import errno
import importlib
import json
import shutil
import time
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.core.errors import EdgekitError, ResourceError
from edgekit.models.spec import read_spec
from edgekit.targets import error_causes, evaluate
from edgekit.targets.error_causes import ConversionFailure
from edgekit.targets.jobs import FLOAT, ConversionJob

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
FULL_BYTES = 64 * 1024
NO_MEMORY = "can't allocate memory"  # PyTorch's message


def convert(job_file: str) -> int:
    """Run the job in a file; return 0, or 1 if it ended before its last step."""
    path = Path(job_file)
    job = ConversionJob.from_json(json.loads(path.read_text(encoding="utf-8")))
    target = importlib.import_module(f"edgekit.targets.{job.target}.convert")
    calibration = np.load(job.calibration, allow_pickle=False)
    with open(path.with_suffix(".journal"), "a", buffering=1, encoding="utf-8") as journal:
        for step in job.steps:
            _write_entry(journal, begins=step.key)
            started = time.perf_counter()
            try:
                flags = {name: True for name in ("fold", "sparse") if getattr(step, name)}
                options = (step.nncf_folder, step.quantization)
                folder = step.corrected or step.model_folder
                files = target.convert(folder, step.precision, calibration, step.out, *options, **flags)
                files = replace(files, head=read_spec(step.model_folder).head)
                # if the file crashes its interpreter, it should crash this process
                evaluate.file_outputs(step.precision, job.target, step.out, files, calibration[:1])
            except Exception as error:
                traceback.print_exc()
                resource = _exhausted_resource(error, step.out)
                failure = _failure(error, step.model_folder)
                _write_entry(journal, failed=step.key, failure=asdict(failure), resource=resource)
                if resource or step.precision == FLOAT:
                    return 1
                continue
            seconds = time.perf_counter() - started
            _write_entry(journal, made=step.key, seconds=seconds, files=files.to_json())
    return 0


def _exhausted_resource(error: Exception, out: Path) -> str:
    """Return the resource that ran out, `memory` or `room` for files; empty if the failure has another cause."""
    first = error_causes.root_cause(error)
    if isinstance(error, ResourceError) or isinstance(first, MemoryError) or NO_MEMORY in str(first):
        return "memory"
    return "room" if _out_of_space(error, out) else ""


def _out_of_space(error: Exception, out: Path) -> bool:
    """Return whether the disk is full. Native writers report it as "iostream error", so the disk is checked as well."""
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    existing = next(folder for folder in (out, *out.parents) if folder.is_dir())
    return shutil.disk_usage(existing).free < FULL_BYTES


def _write_entry(journal: Any, **fields: Any) -> None:
    journal.write(json.dumps(fields) + "\n")


def _failure(error: Exception, model_folder: Path) -> ConversionFailure:
    """Return the failure to report; edgekit's own errors need no analysis."""
    if isinstance(error, EdgekitError):
        return ConversionFailure.from_cause("other", str(error))
    return error_causes.classify(error, model_folder)
