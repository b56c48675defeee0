"""Pools for tests: one that does works in this process, and one that answers from a script."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from edgekit.core.errors import EdgekitError
from edgekit.workbook.workers import Job


class HerePool:
    """Does each work in this process, through JSON as a real one does; `did` lists their functions."""

    count = 1

    def __init__(self) -> None:
        self.did: list[str] = []

    def run(
        self,
        works: Sequence[Job],
        on_done: Callable[[int, Any], None] | None = None,
        check: Any = None,
        *,
        go_on: bool = False,
    ) -> list[Any]:
        results: list[Any] = []
        for number, work in enumerate(works):
            self.did.append(work.function.rpartition(":")[2])
            try:
                results.append(json.loads(json.dumps(self.do(work, json.loads(work.to_json())["arguments"]))))
            except EdgekitError as error:
                if not go_on:
                    raise
                results.append(error)
            if on_done is not None:
                on_done(number, results[-1])
        return results

    def do(self, work: Job, arguments: dict[str, Any]) -> Any:
        module, _, name = work.function.partition(":")
        return getattr(importlib.import_module(module), name)(**arguments)


class ScriptedPool(HerePool):
    """Answers a work by the function of its name in `script`, which gets the work's arguments."""

    def __init__(self, **script: Callable[..., Any]) -> None:
        super().__init__()
        self.script = script

    def do(self, work: Job, arguments: dict[str, Any]) -> Any:
        return self.script[work.function.rpartition(":")[2]](**arguments)
