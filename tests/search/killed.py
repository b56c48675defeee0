"""Run a study in child processes that are killed at random moments until it ends; prints JSON.

    python -m tests.search.killed FOLDER KILLS

The children are forked from a process that has imported everything, so that a hundred of them take only a minute.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from edgekit.search import sampler
from edgekit.search.journal import FILE
from edgekit.search.trial import BatchContext, Trial, TrialOutcome
from tests.search import studies

LONGEST_S = 0.2
"""The first child lives no longer. One that leaves nothing new in the journal gives the next more time."""


def slowly(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
    """Trials that take a moment, finish in an order of chance, and in half of the batches one by one."""
    result = {}
    for trial in random.sample(list(trials), len(trials)):
        time.sleep(random.random() * 0.01)
        result[trial.number] = studies.outcome(trial.parameters)
        if context.batch % 2:
            context.record_outcome(trial.number, result[trial.number])
    return [result[trial.number] for trial in trials]


def to_the_end(folder: Path) -> tuple[int, str]:
    """Kills, and the digest of one study that was killed until it ended by itself."""
    killed, longest_s, journal, before = 0, LONGEST_S, folder / "study" / FILE, 0
    while True:
        child = os.fork()
        if not child:
            random.seed()
            digest = studies.run(folder / "study", folder, sampler_name="tpe", trials=24, evaluate=slowly).digest
            (folder / "digest").write_text(digest)
            os._exit(0)
        time.sleep(random.random() * longest_s)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, status
            return killed, (folder / "digest").read_text()
        killed += 1
        size = journal.stat().st_size if journal.exists() else 0
        longest_s, before = (LONGEST_S if size > before else longest_s * 1.3), size


def main() -> None:
    """As many studies as it takes."""
    home, expected = Path(sys.argv[1]), int(sys.argv[2])
    warm = studies.space(home)
    sampler.propose(warm, warm.objectives, "tpe", 0, [], 1)
    killed, digests = 0, []
    while killed < expected:
        folder = home / str(len(digests))
        folder.mkdir()
        more, digest = to_the_end(folder)
        killed += more
        digests.append(digest)
    print(json.dumps({"killed": killed, "digests": digests}))


if __name__ == "__main__":
    main()
