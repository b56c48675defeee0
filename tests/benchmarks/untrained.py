"""A small network that the benchmarks convert."""

from __future__ import annotations

from pathlib import Path

from edgekit.data import load
from edgekit.models import store
from edgekit.models.from_artifact import spec_for
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY


def saved(folder: Path) -> Path:
    """A small untrained network for the config `tiny`."""
    plan = load_plan(TINY)
    kwargs = {"width": 8, "blocks": 1}
    spec = spec_for(load(plan.data), "edgekit.models.ds_cnn:ds_cnn", kwargs, plan.run.preprocess)
    store.save(folder, store.build(spec), spec)
    return folder
