"""The fresh process that converts: `python -m edgekit.targets.child JOB.json`.

It notes each step it begins and finishes in JOB.journal, one JSON object a line, so that its parent can say what it
was at when it died. A further candidate that fails is noted, and the next step is begun; any other failure is the end.
It ends by itself when its parent does.
"""

from __future__ import annotations

import errno
import importlib
import json
import os
import re
import shutil
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.child import leave_with_parent
from edgekit.targets import FURTHER, evaluate
from edgekit.targets.files import Job

# converters append whole graphs and reading lists to their messages
TELLING = re.compile(r"\berror: |no conversion rule|not supported|unsupported", re.IGNORECASE)
PLACE = re.compile(r'File "((?:(?!site-packages)[^"])+)", line (\d+)')
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES)
FULL_BYTES = 64 * 1024


def main(path: Path) -> int:
    """Run the job in `path`; 0 if every step was made, but for further candidates."""
    leave_with_parent()
    job = Job.from_json(json.loads(path.read_text()))
    target = importlib.import_module(f"edgekit.targets.{job.target}")
    calibration = np.load(job.calibration, allow_pickle=False)
    with open(path.with_suffix(".journal"), "a", buffering=1) as journal:
        for step in job.steps:
            _note(journal, begins=step.precision)
            started = time.perf_counter()
            try:
                files = target.convert(
                    step.model_folder, step.precision, calibration, step.out, step.nncf_folder, step.quantization
                )
                if step.precision in FURTHER:  # an interpreter that dies of it is to die here
                    evaluate.file_outputs(step.precision, job.target, step.out, files, calibration[:1])
            except Exception as error:
                traceback.print_exc()
                space = _out_of_space(error, step.out)
                _note(journal, failed=step.precision, cause=_cause(error), resource=space)
                if space or step.precision not in FURTHER:
                    return 1
                continue
            seconds = time.perf_counter() - started
            _note(journal, made=step.precision, seconds=seconds, files=files.to_json())
    return 0


def _out_of_space(error: Exception, out: Path) -> bool:
    """Native writers tell a full disk as something else ("iostream error"), so the disk itself is asked too."""
    if isinstance(error, OSError):
        return error.errno in NO_SPACE
    there = next(folder for folder in (out, *out.parents) if folder.is_dir())
    return shutil.disk_usage(there).free < FULL_BYTES


def _note(journal: Any, **fields: Any) -> None:
    journal.write(json.dumps(fields) + "\n")


def _cause(error: BaseException) -> str:
    """The first telling line of the innermost error, and the user's line of code that it speaks of, if any."""
    place = next((f" (at {Path(file).name}:{line})" for file, line in PLACE.findall(str(error))), "")
    while error.__cause__:
        error = error.__cause__
    lines = [line.strip(" -\t") for line in str(error).splitlines() if line.strip()] or ["no message"]
    telling = next((line for line in lines if TELLING.search(line)), lines[0])
    return f"{type(error).__name__}: {telling[:300]}{place}"


if __name__ == "__main__":
    code = main(Path(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the frameworks' own shutdown takes seconds and has nothing left to save
