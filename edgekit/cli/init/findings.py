"""What `edgekit init` finds out about data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from edgekit.core.tasks import Task


@dataclass(frozen=True, eq=False)
class Findings:
    """The source that reads the data, with its options, and a description in words.

    `splits` are those that it has already, `comments` are for the config, by option. `labels` are those of arrays,
    `classes` the names in them, or the folders'. `task` is the one that these data mean where none is named.
    """

    section: dict[str, Any]
    words: str
    splits: frozenset[str] = frozenset({"train"})
    comments: dict[str, str] = field(default_factory=dict)
    labels: np.ndarray | None = None
    classes: tuple[str, ...] | None = None
    task: Task = "classification"
