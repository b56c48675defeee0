"""The examples in the docstrings of the public API run as written."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.runner import bundle, input_path
from edgekit.runner.bundle.manifest import RawSpec
from edgekit.runner.loader import load
from edgekit.runner.model import Model
from tests.runner import flat

DIGITS = RawSpec("image", (8, 8, 1), "uint8")
KEYWORDS = RawSpec(
    "audio",
    (16000,),
    "float32",
    (-1.0, 1.0),
    16000,
    input_path=({"step": "decode_wav"}, input_path.windows_step(16000, 16000)),
)


@pytest.fixture
def example_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the examples name, in the working directory."""
    monkeypatch.chdir(tmp_path)
    sample = flat.examples(DIGITS, 1)[0]
    np.save("sample.npy", sample)
    path = flat.write(tmp_path / "digits-tflite-1.0.0.edge.zip", DIGITS)
    ranking = np.argsort(-load(path, trial=False).predict(sample).scores)
    labels = ["", "", ""]
    for place, label in zip(ranking, ("3", "8", "1")):
        labels[place] = label
    flat.write(path, DIGITS, labels=labels)
    flat.write(tmp_path / "keywords-tflite-1.0.0.edge.zip", KEYWORDS, labels=["silence", "yes", "no"])


@pytest.mark.parametrize("documented", [load, Model.predict, Model.stream, bundle.read])
def test_the_example_runs(documented: Any, example_files: None) -> None:
    examples = doctest.DocTestFinder(recurse=False).find(documented, documented.__qualname__, globs={})
    assert examples[0].examples, "the docstring has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    assert runner.run(examples[0], out=report.append).failed == 0, "".join(report)
