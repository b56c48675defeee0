from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.core.tasks import SampleScores
from edgekit.core.tasks.accuracy_interval import accuracy_interval
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.search.model_files import ModelFiles

X = (TensorSpec("x", (1, 4), "float32", "NC"),)


def test_the_interval_of_an_accuracy_is_wilsons() -> None:
    low, high = accuracy_interval(np.arange(100) < 90, 0.95)
    assert (low, high) == (pytest.approx(0.8256, abs=1e-4), pytest.approx(0.9448, abs=1e-4))
    assert accuracy_interval(np.ones(50, bool), 0.95)[1] == 1.0  # none is wrong, and yet it is not sure


def test_other_accuracies_are_drawn_again_and_give_the_same_ends_each_time() -> None:
    random = np.random.default_rng(1)
    y = random.normal(size=200)
    marks = SampleScores("regression", np.stack([y, y + 0.3 * random.normal(size=200)], axis=1))
    low, high = accuracy_interval(marks, 0.95)
    assert low < high and accuracy_interval(marks, 0.95) == [low, high]


def test_a_content_is_known_by_its_bytes_and_its_names_wherever_it_lies(tmp_path: Path) -> None:
    for folder, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.onnx").write_bytes(content)
    a, b, c = (ModelFiles.from_paths("onnx", [tmp_path / name / "model.onnx"], X, X) for name in "abc")
    assert a.key == b.key != c.key and a.bytes == 3
    assert ModelFiles.from_json(a.to_json()) == a


def test_a_content_whose_file_has_changed_or_gone_is_not_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"one")
    content = ModelFiles.from_paths("onnx", [path], X, X)
    assert content.is_intact()
    path.write_bytes(b"two")
    assert not content.is_intact()
    path.unlink()
    assert not content.is_intact()
