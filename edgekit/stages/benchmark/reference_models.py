"""Compare reference models with the winner, on the same samples and in the same rounds.

A reference model is a file made by others. It cannot win and affects no decision, unless a limit of the budget refers
to it. Its accuracy is reported on the test split only, because its unknown training data may include the validation
split. `leakage.py` tests whether the model has probably seen that split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from edgekit.core import progress, tasks
from edgekit.core.paths import expand_path
from edgekit.core.schema.variants import ModelFacts, ReferenceModelFacts, ReferenceModelRow, SeenValidation
from edgekit.measure.references import reference_file
from edgekit.models.files import detect
from edgekit.stages.benchmark.leakage import check_model_file, score_split
from edgekit.stages.benchmark.summary import ratio_fields
from edgekit.stages.benchmark.timings import Timings
from edgekit.training.teachers import model_file
from edgekit.training.teachers.config import ModelFile

if TYPE_CHECKING:
    from edgekit.data import Data


@dataclass(frozen=True)
class ReferenceModel:
    """The facts about a reference model that need no timing, and a function that opens it for calls.

    `leakage` says whether the model has seen validation; it is None if the task does not allow this test.
    """

    row: ReferenceModelFacts
    open: Callable[[], Callable[[], object]]
    leakage: SeenValidation | None

    @property
    def name(self) -> str:
        """The name of the file, which no variant can have."""
        return self.row["name"]


def open_reference_models(files: Sequence[ModelFile], data: Data, threads: int) -> list[ReferenceModel]:
    """Evaluate each file on both splits in a process of its own, then open it here.

    Raises ModelError, which names the file, if it cannot be run.
    """
    return [
        _open(file, data, threads)
        for file in progress.track(files, "reference model", lambda file: f"evaluating {file.name}")
    ]


def compare_with_winner(
    models: Sequence[ReferenceModel], winner: ModelFacts | None, timings: Timings
) -> list[ReferenceModelRow]:
    """Return a row for each reference model with its latencies and its comparison with the winner.

    `winner_speedup` is the p50 of the reference model divided by that of the winner, and `winner_bytes_share` is the
    size of the winner divided by that of the reference model. Without a winner, these fields are null.
    """
    rows = [
        {
            **model.row,
            **timings.latencies[model.name],
            "winner": winner["name"] if winner else None,
            "winner_gain_pp": 100 * (winner["accuracy_test"] - model.row["accuracy_test"]) if winner else None,
            "winner_bytes_share": winner["bytes"] / model.row["bytes"] if winner else None,
            **ratio_fields("winner_speedup", timings.ratio(model.name, winner["name"]) if winner else None),
        }
        for model in models
    ]
    return [cast("ReferenceModelRow", row) for row in rows]


def _open(file: ModelFile, data: Data, threads: int) -> ReferenceModel:
    model = model_file.open_file(expand_path(file.path, "benchmark.rivals"), file.preprocess)
    test = score_split("rival", model, data.test, data, threads)
    row: ReferenceModelFacts = {
        "name": file.name,
        "sha256": model.sha256,
        "bytes": sum(path.stat().st_size for path in detect.members(model.path, model.kind)),
        "accuracy_test": tasks.accuracy(test),
    }
    opener = partial(reference_file(str(model.path), model.kind, model.preprocess, data).call, data.test.x[:1], threads)
    return ReferenceModel(row, opener, check_model_file(file.name, "rival", model, data, threads, test))
