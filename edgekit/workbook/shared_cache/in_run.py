"""The shared caches of one run: asked for a stage before it runs, given what it sealed."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from pathlib import Path

from edgekit import data as datas
from edgekit.core import artifacts, lock
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ResourceError
from edgekit.core.run_folder import working_folder
from edgekit.core.terminal_progress import ProgressDisplay, show_progress
from edgekit.workbook import origin, state
from edgekit.workbook.plan import Plan
from edgekit.workbook.shared_cache.cache import open_cache
from edgekit.workbook.stage import RUN_LOCK
from edgekit.workbook.state import DataDigest, StageState, StageStates

ENVIRONMENT = "EDGEKIT_CACHE"
"""Environment variable: URLs of shared caches with commas between them, for runs that name none."""

Say = Callable[[str], None]


def urls(given: Sequence[str]) -> list[str]:
    """The URLs of `--cache`, else those of the environment."""
    return list(given) or [url.strip() for url in os.environ.get(ENVIRONMENT, "").split(",") if url.strip()]


class RunCaches:
    """Several caches, the first asked first; what one of them lacks is put into it. Without any, nothing happens.

    `say` is called with each line; `sources` has the URL that a stage was taken from.
    """

    def __init__(self, given: Sequence[str], say: Say) -> None:
        self.say = say
        self.sources: dict[str, str] = {}
        self._caches = [open_cache(url, self._line) for url in given]

    def __bool__(self) -> bool:
        return bool(self._caches)

    def read_data(self, plan: Plan, folder: Path, found: DataDigest) -> DataDigest:
        """The data's digest, read where nobody knows it; with the origin, which all keys rest on. The lock is held."""
        if not self._caches:
            return found
        digest = found.digest or datas.load(plan.data).digest
        wanted = origin.cache_inputs(plan, digest).key
        artifacts.recover(working_folder(folder, origin.STAGE), folder / origin.STAGE, wanted)
        if not state.examine_origin(plan, folder, digest).sealed:
            any(cache.pull(wanted, folder, origin.STAGE) for cache in self._caches)
        self.give(origin.make(plan, digest, folder), folder)
        return DataDigest(digest, found.sign)

    def take_all(self, states: StageStates, force: Collection[str], watch: ProgressDisplay) -> None:
        """Take stages in their order, up to the first that has to run."""
        for stage in states.plan.pipeline if self._caches else ():
            if stage in force or self.take(states, stage, watch).state != "done":
                return

    def take(self, states: StageStates, stage: str, watch: ProgressDisplay) -> StageState:
        """The state of a stage after recovery, and after taking it from a cache if it has to run and one has it."""
        found = states.recovered(stage)
        for cache in self._caches:
            if found.sealed or found.wanted is None:
                break
            with watch.during(f"{stage} from {cache.url}", quietly=True):
                taken = cache.pull(found.wanted.key, states.folder, stage)
            if taken:
                states.forget(stage)
                found = states.of(stage)
                self.sources[stage] = cache.url
        return found

    def give(self, artifact: Artifact | None, folder: Path, watch: ProgressDisplay | None = None) -> None:
        """Put a stage into every cache that lacks it; TrustError where one has another result under its key."""
        for cache in self._caches:
            if artifact is not None and artifact.stage not in cache.taken:
                with watch.during(f"{artifact.stage} to {cache.url}", quietly=True) if watch else nullcontext():
                    cache.push(artifact, folder)

    def give_finished(self, plan: Plan, folder: Path, data_digest: str | None) -> None:
        """Put the stages of a finished run into every cache that lacks them."""
        if not self._caches:
            return
        try:
            with lock.hold(folder / RUN_LOCK, "edgekit run --cache"), show_progress("shared caches"):
                if data_digest is not None:
                    self.give(origin.make(plan, data_digest, folder), folder)
                for each in state.examine(plan, folder, data_digest):
                    self.give(each.artifact if each.state == "done" else None, folder)
                self.give_page(folder)
        except ResourceError as error:
            self.say(f"nothing was stored in a cache: {error}")
        self.account()

    def take_page(self, folder: Path) -> None:
        """Take the page of a run that has its result, if it was drawn elsewhere from the same sources."""
        for cache in self._caches:
            cache.pull_page(folder)

    def give_page(self, folder: Path) -> None:
        """Put the run's page into every cache that lacks it."""
        for cache in self._caches:
            cache.push_page(folder)

    def account(self) -> None:
        """Say in one line for each cache how many stages came from it and went into it."""
        for cache in self._caches:
            taken, given = (len(set(names) - {origin.STAGE}) for names in (cache.taken, cache.given))
            if taken or given:
                self.say(f"cache {cache.url}: {taken} stages reused from it, {given} stored in it")

    def _line(self, line: str) -> None:
        self.say(line)
