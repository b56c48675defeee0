"""What a Dask worker does: one work in a process of its own, for as long as the one who asked wants it."""

from __future__ import annotations

import os
from typing import Any

from edgekit.core import telemetry
from edgekit.measure import lane
from edgekit.workbook.workers.carry import carry
from edgekit.workbook.workers.work import WorkerDied


def carry_here(work: str, name: str, topic: str) -> dict[str, Any]:
    """The answer to `work` (from `Work.to_json`); each line that it says is an event of `topic`.

    `{"died": …}` in words where there is none: an exception might not come through Dask, and would be waited for.
    Whoever asked and has gone, or wants it no more, ends it.
    """
    from distributed import get_worker

    telemetry.disable()
    worker = get_worker()
    key = worker.get_current_task()

    def wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    def say(line: str) -> None:
        worker.log_event(topic, [name, line])

    where = os.environ.get(lane.FOLDER_VARIABLE) or str(lane.machine_folder())
    try:
        return carry(work, {lane.FOLDER_VARIABLE: where}, say, wanted)._asdict()
    except (WorkerDied, OSError) as error:  # the latter such as a full disk of that machine
        return {"died": str(error)}
