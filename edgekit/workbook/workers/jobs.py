"""The jobs of a pool. A job is a function's name with arguments in JSON; its answer is JSON with a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol

from edgekit.core import errors
from edgekit.core.errors import ResourceError

MAX_TRIES = 3
"""Largest number of times that a job is started, if its worker dies or gives a wrong answer."""

OnLine = Callable[[str, str], None]
"""Called with the name of a job and a line that it printed."""
Check = Callable[[int, Any], str]
"""Called with the number and the result of a job. Returns what is wrong with the result, or an empty string."""


@dataclass(frozen=True)
class Job:
    """A call of `function` ("package.module:function") with `arguments`, which are JSON values, in its own process.

    `name` is shown in progress lines. While a job with `resources="measure"` runs, no other measurement runs on its
    machine.
    """

    name: str
    function: str
    arguments: dict[str, Any]
    resources: Literal["compute", "measure"] = "compute"

    def to_json(self) -> str:
        """Return the job as text for the process that runs it."""
        return json.dumps(asdict(self), allow_nan=False)


class Pool(Protocol):
    """Processes that run jobs."""

    @property
    def count(self) -> int:
        """Number of jobs that run at a time."""

    def run(
        self,
        jobs: Sequence[Job],
        on_done: Callable[[int, Any], None] | None = None,
        check: Check | None = None,
        *,
        keep_going: bool = False,
    ) -> list[Any]:
        """Run all jobs and return their results, which are JSON values, in the order of the jobs.

        `on_done` is called with the number and the result of each job as it ends. A job whose worker dies is started
        again, on another worker if there is one, and at most three times in all. The same applies if the answer is
        wrong, which means that it does not match the digest that the job's process computed, or that `check` finds a
        fault in it. A worker that gave a wrong answer is no longer used.

        After an error, no further job is started. With `keep_going`, all jobs are run, and errors are returned among
        the results.

        Raises
        ------
        EdgekitError
            The error that a job raised; if there are several, that of the first job.
        JobLost, ResourceError
            The process of a job died each time, or its worker disconnected.
        TrustError
            A result was wrong and no worker is left to run the job again.
        """


class Answer(NamedTuple):
    """The answer of a job: the JSON text of its result or error, and the sha256 that the job's process computed."""

    text: str
    sha256: str

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> Answer:
        """Return the answer for `{"result": …}` or `{"error": …, "kind": …, "exit_code": …}`.

        Raises
        ------
        ValueError
            JSON cannot represent the content.
        """
        text = json.dumps(content, allow_nan=False)
        return cls(text, sha256(text))

    @property
    def is_intact(self) -> bool:
        """Whether the text still matches the digest."""
        return sha256(self.text) == self.sha256

    def result(self) -> Any:
        """Return the job's result or raise its error."""
        content = json.loads(self.text)
        if "error" in content:
            raise errors.from_json(content)
        return content["result"]


class WorkerDied(Exception):
    """A process ended without an answer. The message says how it ended."""


class JobLost(ResourceError):
    """A job was given up because its process died each time."""


def sha256(text: str) -> str:
    """Return the hex digest of the text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
