"""The function that a Dask worker runs: it runs one job in its own process, as long as the client wants the answer."""

from __future__ import annotations

import os
from typing import Any

from edgekit.core import telemetry
from edgekit.measure import lane
from edgekit.workbook.workers.job_process import run_in_process
from edgekit.workbook.workers.jobs import WorkerDied


def run_job_on_worker(job: str, name: str, topic: str) -> dict[str, Any]:
    """Run a job (from `Job.to_json`) and return its answer. Each line that the job prints becomes an event of `topic`.

    If there is no answer, the result is `{"died": reason}` and not an exception, because an exception might not pass
    through Dask, and the client would wait for it. The job ends if the client disconnects or cancels it.
    """
    from distributed import get_worker

    telemetry.disable()
    worker = get_worker()
    key = worker.get_current_task()

    def is_wanted() -> bool:
        task = worker.state.tasks.get(key)
        return task is not None and task.state == "executing"

    def say(line: str) -> None:
        worker.log_event(topic, [name, line])

    lane_folder = os.environ.get(lane.FOLDER_VARIABLE) or str(lane.machine_folder())
    try:
        return run_in_process(job, {lane.FOLDER_VARIABLE: lane_folder}, say, is_wanted)._asdict()
    except (WorkerDied, OSError) as error:  # OSError: for example a full disk on that machine
        return {"died": str(error)}
