"""Worker pools for tests: one runs jobs in this process, and one answers from a script."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from edgekit.core.errors import EdgekitError
from edgekit.workbook.workers import Job


class HerePool:
    """Runs each job in this process, through JSON as a real one does; `did` lists their functions."""

    count = 1

    def __init__(self) -> None:
        self.did: list[str] = []

    def run(
        self,
        jobs: Sequence[Job],
        on_done: Callable[[int, Any], None] | None = None,
        check: Any = None,
        *,
        keep_going: bool = False,
    ) -> list[Any]:
        results: list[Any] = []
        for number, job in enumerate(jobs):
            self.did.append(job.function.rpartition(":")[2])
            try:
                results.append(json.loads(json.dumps(self.do(job, json.loads(job.to_json())["arguments"]))))
            except EdgekitError as error:
                if not keep_going:
                    raise
                results.append(error)
            if on_done is not None:
                on_done(number, results[-1])
        return results

    def do(self, job: Job, arguments: dict[str, Any]) -> Any:
        module, _, name = job.function.partition(":")
        return getattr(importlib.import_module(module), name)(**arguments)


class ScriptedPool(HerePool):
    """Answers a job with the function of its name in `script`, which gets the job's arguments."""

    def __init__(self, **script: Callable[..., Any]) -> None:
        super().__init__()
        self.script = script

    def do(self, job: Job, arguments: dict[str, Any]) -> Any:
        return self.script[job.function.rpartition(":")[2]](**arguments)
