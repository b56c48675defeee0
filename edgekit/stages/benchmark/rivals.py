"""Rivals: external baselines, compared with the winner on the same samples and in the same rounds.

A rival decides nothing and wins nothing. Its accuracy is that of the test split alone: its training data is
unknown here and may have included the validation split. Whether it surely has is told (`leakage.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from edgekit.core import progress, tasks
from edgekit.core.schema.variants import ModelFacts, ReferenceModelFacts, SeenValidation
from edgekit.core.schema.variants import ReferenceModelRow as RivalRow
from edgekit.data.paths import expand_path
from edgekit.measure.references import reference_file
from edgekit.models.files import detect
from edgekit.stages.benchmark.account import with_interval
from edgekit.stages.benchmark.leakage import answered, seen_by
from edgekit.stages.benchmark.timings import Timings
from edgekit.training.teachers import model_file
from edgekit.training.teachers.config import ModelFile

if TYPE_CHECKING:
    from edgekit.data import Data


@dataclass(frozen=True)
class Rival:
    """What is known of it without a clock, and what opens it for calls.

    `seen`: whether it knows validation; None where its task cannot tell.
    """

    row: ReferenceModelFacts
    open: Callable[[], Callable[[], object]]
    seen: SeenValidation | None

    @property
    def name(self) -> str:
        """Its file's, which no variant can have."""
        return self.row["name"]


def open_rivals(named: Sequence[ModelFile], data: Data, threads: int) -> list[Rival]:
    """Each file answered both splits in a process of its own before it is opened here; ModelError names the file."""
    return [
        _open(one, data, threads)
        for one in progress.track(named, "reference model", lambda one: f"evaluating {one.name}")
    ]


def compare_with(rivals: Sequence[Rival], winner: ModelFacts | None, timings: Timings) -> list[RivalRow]:
    """Each rival with its latencies and what the winner is beside it; nulls where nothing won.

    `winner_speedup` is the rival's p50 over the winner's, `winner_bytes_share` the winner's bytes over the rival's.
    """
    rows = [
        {
            **rival.row,
            **timings.latencies[rival.name],
            "winner": winner["name"] if winner else None,
            "winner_gain_pp": 100 * (winner["accuracy_test"] - rival.row["accuracy_test"]) if winner else None,
            "winner_bytes_share": winner["bytes"] / rival.row["bytes"] if winner else None,
            **with_interval("winner_speedup", timings.ratio(rival.name, winner["name"]) if winner else None),
        }
        for rival in rivals
    ]
    return [cast("RivalRow", row) for row in rows]


def _open(file: ModelFile, data: Data, threads: int) -> Rival:
    model = model_file.open_file(expand_path(file.path, "benchmark.rivals"), file.preprocess)
    test = answered("rival", model, data.test, data, threads)
    row: ReferenceModelFacts = {
        "name": file.name,
        "sha256": model.sha256,
        "bytes": sum(path.stat().st_size for path in detect.members(model.path, model.kind)),
        "accuracy_test": tasks.accuracy(test),
    }
    called = partial(reference_file(str(model.path), model.kind, model.preprocess, data).call, data.test.x[:1], threads)
    return Rival(row, called, seen_by(file.name, "rival", model, data, threads, test))
