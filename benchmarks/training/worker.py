"""One training that waits for a line before each of its epochs: `python -P worker.py CONFIG JSON`.

Run with PYTHONPATH at the edgekit whose loop is measured, so it uses only what older ones have too. JSON: `settings`
of the config, and `epochs`.
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


def main(config: str, wanted: dict[str, Any]) -> None:
    """A line of JSON for each epoch, and one at the end."""
    import numpy as np

    from edgekit import data as all_data
    from edgekit.core import tasks
    from edgekit.models import store
    from edgekit.models.from_artifact import spec_for
    from edgekit.training.fit import fit
    from edgekit.training.predict import sample_scores
    from edgekit.workbook.plan import load_plan, make_importable

    plan = load_plan(Path(config), wanted["settings"])
    make_importable(plan)
    steps, run = plan.run.preprocess, plan.run
    data = all_data.load(plan.data).withhold_test()
    spec = spec_for(data, run.model.builder, run.model.kwargs, steps)
    module = store.build(spec, seed=run.seed)
    options = plan.stages["profile"].model_copy(update={"epochs": wanted["epochs"]})
    more: dict[str, Any] = {}
    if "training" in inspect.signature(fit).parameters:
        more["training"] = run.training
    say({"samples": len(data.train.y)})
    began = _go()

    def epoch_ended(result: Any) -> None:
        nonlocal began
        taken = [after - before for after, before in zip(_clocks(), began, strict=True)]
        say({"wall_s": taken[0], "user_s": taken[1], "system_s": taken[2], **asdict(result)})
        if result.epoch < wanted["epochs"]:
            began = _go()

    fit(module, data, steps, options, seed=run.seed, device="cpu", threads=run.threads, on_epoch=epoch_ended, **more)
    state = hashlib.sha256(b"".join(value.numpy().tobytes() for value in module.state_dict().values())).hexdigest()
    found = sample_scores(module, data.validation, steps, data.task)
    right = found.tolist() if isinstance(found, np.ndarray) else None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say({"sha256": state, "accuracy": tasks.accuracy(found), "right": right, "peak_kb": peak})


def say(row: dict[str, Any]) -> None:
    """One line to whoever started this."""
    print("::" + json.dumps(row), flush=True)


def _go() -> tuple[float, float, float]:
    """Wait for a line; the clocks after it."""
    if not sys.stdin.readline():
        raise SystemExit(1)
    return _clocks()


def _clocks() -> tuple[float, float, float]:
    """Seconds: of the wall, of this process in user mode and in the kernel."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime, used.ru_stime


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
