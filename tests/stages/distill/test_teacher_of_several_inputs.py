"""A file of several inputs as a teacher: it gets the tensors by their names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgekit import data
from edgekit.core.errors import ConfigError
from edgekit.models import store
from edgekit.stages.distill.config import TeacherConfig
from edgekit.stages.distill.teacher import open_teacher_file
from edgekit.targets.onnx import convert
from edgekit.training.predict import evaluate
from tests import joint_data


@pytest.fixture(scope="module")
def dataset() -> data.Data:
    section = {"source": "python", "function": "tests.joint_data:arrays", "calibration_samples": 60}
    return data.load(data.parse(section, "classification"))


@pytest.fixture(scope="module")
def network(dataset: data.Data) -> tuple[torch.nn.Module, store.ModelSpec]:
    """Trained for some seconds: a teacher must know something."""
    return joint_data.trained(dataset)


@pytest.fixture(scope="module")
def file(network: tuple[torch.nn.Module, store.ModelSpec], tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("teacher")
    store.save(home / "model", *network)
    convert.convert(home / "model", "fp32", None, home)
    return home / convert.FILE


def test_it_answers_as_the_network_that_it_was_made_from(
    network: tuple[torch.nn.Module, store.ModelSpec], file: Path, dataset: data.Data
) -> None:
    assert len(joint_data.NAMES) == len(dataset.tensors or ()) == 3
    candidate = open_teacher_file("a file", TeacherConfig(path=str(file)), dataset, 1)
    assert candidate.accuracy == pytest.approx(evaluate(network[0], dataset.validation, [], "classification"))
    assert np.isfinite(candidate.accuracy) and candidate.accuracy > 0.8


def test_steps_that_would_change_all_tensors_are_refused(file: Path, dataset: data.Data) -> None:
    scaled = TeacherConfig(path=str(file), preprocess=[{"step": "scale", "factor": 0.5}])
    with pytest.raises(ConfigError, match="samples of several tensors cannot"):
        open_teacher_file("a file", scaled, dataset, 1)
