"""The shared caches of one run.

A stage is looked up in them before it runs, and stored in them when the run has sealed it.
"""

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
"""Environment variable with the URLs of shared caches, separated by commas, for runs without `--cache`."""

Say = Callable[[str], None]


def cache_urls(options: Sequence[str]) -> list[str]:
    """Return the URLs of `--cache` or, if there are none, those of the environment."""
    return list(options) or [url.strip() for url in os.environ.get(ENVIRONMENT, "").split(",") if url.strip()]


class RunCaches:
    """The caches of a run. A stage is pulled from the first cache that has it, and pushed to every cache that lacks it.

    If there are no caches, the methods do nothing. `say` is called with each line of the report. `sources` has the URL
    from which each stage was pulled.
    """

    def __init__(self, cache_urls: Sequence[str], say: Say) -> None:
        self.say = say
        self.sources: dict[str, str] = {}
        self._caches = [open_cache(url, self._say_line) for url in cache_urls]

    def __bool__(self) -> bool:
        return bool(self._caches)

    def read_data(self, plan: Plan, folder: Path, known_digest: DataDigest) -> DataDigest:
        """Return the digest of the data, and pull or push the origin.

        The data is read if its digest is not known. The origin comes before all stages, because their keys depend on
        it. The caller holds the run's lock.
        """
        if not self._caches:
            return known_digest
        digest = known_digest.digest or datas.load(plan.data).digest
        key = origin.cache_inputs(plan, digest).key
        artifacts.recover(working_folder(folder, origin.STAGE), folder / origin.STAGE, key)
        if not state.examine_origin(plan, folder, digest).is_sealed:
            any(cache.pull(key, folder, origin.STAGE) for cache in self._caches)
        self.push(origin.make_origin(plan, digest, folder), folder)
        return DataDigest(digest, known_digest.fingerprint)

    def pull_all(self, states: StageStates, force: Collection[str], watch: ProgressDisplay) -> None:
        """Pull stages in order, up to the first stage that has to run."""
        for stage in states.plan.pipeline if self._caches else ():
            if stage in force or self.pull(states, stage, watch).state != "done":
                return

    def pull(self, states: StageStates, stage: str, watch: ProgressDisplay) -> StageState:
        """Recover a stage and return its state. A stage that would have to run is pulled first, if a cache has it."""
        stage_state = states.recover(stage)
        for cache in self._caches:
            if stage_state.is_sealed or stage_state.expected_inputs is None:
                break
            with watch.during(f"{stage} from {cache.url}", quietly=True):
                is_pulled = cache.pull(stage_state.expected_inputs.key, states.folder, stage)
            if is_pulled:
                states.forget(stage)
                stage_state = states.state_of(stage)
                self.sources[stage] = cache.url
        return stage_state

    def push(self, artifact: Artifact | None, folder: Path, watch: ProgressDisplay | None = None) -> None:
        """Push a stage to every cache that lacks it.

        Raises
        ------
        TrustError
            A cache has another result under the same key.
        """
        for cache in self._caches:
            if artifact is not None and artifact.stage not in cache.pulled:
                with watch.during(f"{artifact.stage} to {cache.url}", quietly=True) if watch else nullcontext():
                    cache.push(artifact, folder)

    def push_finished(self, plan: Plan, folder: Path, data_digest: str | None) -> None:
        """Push the stages of a finished run to every cache that lacks them."""
        if not self._caches:
            return
        try:
            with lock.hold(folder / RUN_LOCK, "edgekit run --cache"), show_progress("shared caches"):
                if data_digest is not None:
                    self.push(origin.make_origin(plan, data_digest, folder), folder)
                for stage_state in state.examine_stages(plan, folder, data_digest):
                    self.push(stage_state.artifact if stage_state.state == "done" else None, folder)
                self.push_page(folder)
        except ResourceError as error:
            self.say(f"nothing was stored in a cache: {error}")
        self.report_counts()

    def pull_page(self, folder: Path) -> None:
        """Pull the page of a run that has a result, if another machine drew it from the same sources."""
        for cache in self._caches:
            cache.pull_page(folder)

    def push_page(self, folder: Path) -> None:
        """Push the run's page to every cache that lacks it."""
        for cache in self._caches:
            cache.push_page(folder)

    def report_counts(self) -> None:
        """Report in one line for each cache how many stages were pulled and pushed."""
        for cache in self._caches:
            pulled, pushed = (len(set(names) - {origin.STAGE}) for names in (cache.pulled, cache.pushed))
            if pulled or pushed:
                self.say(f"cache {cache.url}: {pulled} stages reused from it, {pushed} stored in it")

    def _say_line(self, line: str) -> None:
        self.say(line)
