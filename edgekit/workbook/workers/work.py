"""What a pool does: a function by its name, arguments and a result in JSON, and the answer that carries a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Protocol

from edgekit.core import errors
from edgekit.core.errors import ResourceError

TRIES = 3
"""How often a work is begun whose worker dies or lies."""

OnLine = Callable[[str, str], None]
"""Called with the name of a work and a line that it said."""
Check = Callable[[int, Any], str]
"""Called with the number and the result of a work; what is wrong with the result in words, empty where nothing is."""


@dataclass(frozen=True)
class Work:
    """One call of `function` ("package.module:function") with `arguments`, JSON values, in a process of its own.

    `name` is what progress shows. A work that is to `measure` holds the lane of its machine alone.
    """

    name: str
    function: str
    arguments: dict[str, Any]
    resources: Literal["compute", "measure"] = "compute"

    def to_json(self) -> str:
        """For the process that does it."""
        return json.dumps(asdict(self), allow_nan=False)


class Pool(Protocol):
    """Processes that works are sent to."""

    @property
    def count(self) -> int:
        """How many works it does at a time."""

    def run(
        self,
        works: Sequence[Work],
        on_done: Callable[[int, Any], None] | None = None,
        check: Check | None = None,
        *,
        go_on: bool = False,
    ) -> list[Any]:
        """Do all works; their results, JSON values, in the order of the works.

        `on_done` is called with the number and the result of each as it ends. A worker that dies costs one work: it is
        begun three times at most, on another worker where there is one. The same goes for a worker that lies: its
        answer does not have the digest that the work's process took, or `check` finds it wrong. That worker is used no
        more. After an error no further work begins; with `go_on` the errors stand among the results instead.

        Raises
        ------
        EdgekitError
            What a work raised, by its class and words: of several the one of the first work.
        WorkLost, ResourceError
            A work whose process died each time, or whose worker went.
        TrustError
            A wrong result, and nobody left to make it again.
        """


class Answer(NamedTuple):
    """What came of a work: the JSON text of its result or error, and the sha256 that its process took of it."""

    text: str
    sha256: str

    @classmethod
    def of(cls, content: dict[str, Any]) -> Answer:
        """Of `{"result": …}` or `{"error": …, "kind": …, "exit_code": …}`. ValueError for what JSON cannot hold."""
        text = json.dumps(content, allow_nan=False)
        return cls(text, sha256(text))

    @property
    def whole(self) -> bool:
        """Whether it is what its process made."""
        return sha256(self.text) == self.sha256

    def result(self) -> Any:
        """The work's result; raises the work's error."""
        content = json.loads(self.text)
        if "error" in content:
            raise errors.from_json(content)
        return content["result"]


class WorkerDied(Exception):
    """A process ended without an answer; the words say how."""


class WorkLost(ResourceError):
    """A work was given up, because its process died each time."""


def sha256(text: str) -> str:
    """Hex digest of the text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
