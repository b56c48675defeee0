"""The stages of one trial, made one after another in this process, and shared with other trials by their keys."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ConfigError
from edgekit.workbook import state
from edgekit.workbook.config_file import join_settings
from edgekit.workbook.plan import Plan
from edgekit.workbook.shared_cache import SharedCache, open_cache
from edgekit.workbook.stage import OpenStage, open_stage


def make(
    config: str, settings: Sequence[str], out: Path, until: str, caches: Sequence[str] = ()
) -> tuple[OpenStage, Artifact, dict[str, float]]:
    """Make every stage up to `until`, as its notebook would; the last one opened, its artifact, seconds by stage.

    A stage with the same key is taken from the first of the `caches` that has it, and goes into those that lack it.

    Parameters
    ----------
    config
        Path of the config.
    settings
        Overrides, each `key.key=value`.
    out
        Folder that holds the run.
    until
        The last stage.
    caches
        Folders or URLs of shared caches, asked in this order.

    Raises
    ------
    EdgekitError
        What a stage raised.
    """
    opened_caches = [open_cache(url) for url in caches]
    took_s: dict[str, float] = {}
    stage: str | None = "profile"
    while stage is not None:
        began = time.monotonic()
        parameters = {"config": config, "out": str(out.absolute()), "settings": join_settings(list(settings))}
        opened = open_stage(stage, parameters)
        _pull(opened, opened_caches)
        made = opened.run()
        for cache in opened_caches:
            cache.push(made, opened.folder)
        took_s[stage] = round(time.monotonic() - began, 3)
        stage = _after(opened.plan, stage, until)
    return opened, made, took_s


def _after(plan: Plan, stage: str, until: str) -> str | None:
    if until not in plan.pipeline:
        raise ConfigError(f"{plan.path.name}: has no stage {until}; its stages are {', '.join(plan.pipeline)}")
    place = plan.pipeline.index(stage)
    return None if stage == until else plan.pipeline[place + 1]


def _pull(opened: OpenStage, caches: Sequence[SharedCache]) -> None:
    """Bring the stage's artifact from a cache, where it is not there yet."""
    wanted = state.cache_inputs(opened.plan, opened.folder, opened.name, opened.source, opened.data.digest)
    if state.check_artifact(opened.out, wanted)[0] != "unchecked":
        any(cache.pull(wanted.key, opened.folder, opened.name) for cache in caches)
