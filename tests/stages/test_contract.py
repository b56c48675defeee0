"""What every stage is held to, over the stages that the folder holds and the artifacts of one real run."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil

import pytest

import edgekit.stages
from edgekit.core import artifacts, cache_key
from edgekit.core.config import SHARED_FIELDS, STAGES, StageConfig
from edgekit.core.run_folder import stage_folder
from edgekit.workbook.config_file import own_fields, stage_config
from edgekit.workbook.plan import load_plan
from tests.conftest import TINY, FinishedRun

FOUND = sorted(module.name for module in pkgutil.iter_modules(edgekit.stages.__path__))


def test_the_folder_holds_the_stages_of_the_pipeline() -> None:
    assert sorted(STAGES) == FOUND


@pytest.mark.parametrize("stage", FOUND)
class TestModule:
    def test_has_a_strict_config(self, stage: str) -> None:
        config = stage_config(stage)
        assert issubclass(config, StageConfig)
        assert config.model_config["extra"] == "forbid"
        assert config.model_config["strict"]
        for name in own_fields(config):
            assert name not in SHARED_FIELDS

    def test_has_the_one_signature(self, stage: str) -> None:
        run = importlib.import_module(f"edgekit.stages.{stage}").run
        parameters = list(inspect.signature(run).parameters.values())
        assert [parameter.name for parameter in parameters][:4] == ["source", "data", "config", "out"]
        assert all(parameter.default is not inspect.Parameter.empty for parameter in parameters[4:])

    def test_names_installed_libraries(self, stage: str) -> None:
        libraries = importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES
        assert set(cache_key.library_versions(libraries)) == set(libraries)


@pytest.mark.parametrize("stage", STAGES)
class TestArtifact:
    def test_is_whole_and_says_what_made_it(self, stage: str, tiny_run: FinishedRun) -> None:
        found = artifacts.load(stage_folder(tiny_run.folder, stage))
        artifacts.verify(found)
        assert found.stage == stage
        assert found.config == load_plan(TINY).stages[stage].model_dump()
        assert set(found.versions) == set(importlib.import_module(f"edgekit.stages.{stage}").LIBRARIES)

    def test_descends_from_the_stage_before(self, stage: str, tiny_run: FinishedRun) -> None:
        found = artifacts.load(stage_folder(tiny_run.folder, stage))
        before = ("origin", *STAGES)[STAGES.index(stage)]
        assert found.parent is not None
        assert found.parent["stage"] == before
        assert found.ancestor("origin").stage == "origin"

    def test_its_metrics_are_plain_json(self, stage: str, tiny_run: FinishedRun) -> None:
        found = artifacts.load(stage_folder(tiny_run.folder, stage))
        assert json.loads(json.dumps(found.metrics, allow_nan=False)) == found.metrics

    def test_leaves_no_working_folder_behind(self, stage: str, tiny_run: FinishedRun) -> None:
        assert not list(tiny_run.folder.glob(f".{stage}.*"))
