"""One training that waits for a line before each epoch: `python -P worker.py CONFIG JSON`.

It runs with the measured version of edgekit on PYTHONPATH, so it uses only functions that older versions have as well.
JSON contains the `settings` of the config and the number of `epochs`.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import resource
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any


def main(config: str, request: dict[str, Any]) -> None:
    """Train, and print a line of JSON for each epoch and one at the end."""
    import numpy as np

    from edgekit import data as all_data
    from edgekit.core import tasks
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for
    from edgekit.training.fit import fit
    from edgekit.training.predict import sample_scores
    from edgekit.workbook.plan import load_plan, make_importable

    plan = load_plan(Path(config), request["settings"])
    make_importable(plan)
    steps, run = plan.run.preprocess, plan.run
    before_reading = time.perf_counter()
    data = all_data.load(plan.data).withhold_test()
    read_s = time.perf_counter() - before_reading
    spec = spec_for(data, run.model.builder, run.model.kwargs, steps)
    module = store.build(spec, seed=run.seed)
    options = plan.stages["profile"].model_copy(update={"epochs": request["epochs"]})
    extra_arguments: dict[str, Any] = {}
    if "training" in inspect.signature(fit).parameters:
        extra_arguments["training"] = run.training
    print_row({"samples": len(data.train.y), "read_s": read_s})
    started = _wait_for_start()

    def epoch_ended(result: Any) -> None:
        nonlocal started
        elapsed = [now - then for now, then in zip(_clocks(), started, strict=True)]
        print_row({"wall_s": elapsed[0], "user_s": elapsed[1], "system_s": elapsed[2], **asdict(result)})
        if result.epoch < request["epochs"]:
            started = _wait_for_start()

    fit(
        module,
        data,
        steps,
        options,
        seed=run.seed,
        device="cpu",
        threads=run.threads,
        on_epoch=epoch_ended,
        **extra_arguments,
    )
    state = hashlib.sha256(b"".join(value.numpy().tobytes() for value in module.state_dict().values())).hexdigest()
    scores = sample_scores(module, data.validation, steps, data.task)
    is_right = scores.tolist() if isinstance(scores, np.ndarray) else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print_row({"sha256": state, "accuracy": tasks.accuracy(scores), "right": is_right, "peak_kb": peak})


def print_row(row: dict[str, Any]) -> None:
    """Print one line for the process that started this one."""
    print("::" + json.dumps(row), flush=True)


def _wait_for_start() -> tuple[float, float, float]:
    """Wait for a line and return the clocks after it."""
    if not sys.stdin.readline():
        raise SystemExit(1)
    return _clocks()


def _clocks() -> tuple[float, float, float]:
    """Return seconds of wall time, and of this process in user mode and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), usage.ru_utime, usage.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
