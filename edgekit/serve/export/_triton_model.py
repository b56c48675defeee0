"""Runs a bundle on Triton's Python backend: it takes raw samples and returns scores and the bundle's answer.

This file is exported as `model.py`, next to the bundle and the runner, so that the server's Python needs only numpy and
the bundle's interpreter.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "edgerun.pyz"))

from edgekit.runner import bundle  # noqa: E402  (out of the archive)
from edgekit.runner.backends import States  # noqa: E402
from edgekit.runner.errors import InputError, RunnerError  # noqa: E402
from edgekit.runner.model import Model, open_model  # noqa: E402


class ScoreKeepingModel(Model):
    """A model that keeps the outputs of its last run, because `predict` returns only the answer."""

    scores: np.ndarray

    def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray:
        """See `Model`."""
        self.scores = super().execute(x, states)
        return self.scores


class TritonPythonModel:
    """The interface that Triton calls."""

    def initialize(self, args: Any) -> None:
        """Verify and open the bundle, and refuse to serve it if its self-test fails."""
        opened = open_model(bundle.read(os.path.join(HERE, "bundle.edge.zip")))
        self.model = ScoreKeepingModel(opened.bundle, opened.backend, opened.threads)
        report = self.model.selftest()
        if not report.ok:
            raise pb_utils.TritonModelException(
                f"the answers to the golden samples are not the recorded ones: they are off by "
                f"{report.max_abs_delta:.3g}, but {report.atol:.3g} is allowed"
            )

    def execute(self, requests: Any) -> list[Any]:
        """Return a response for each request. An invalid sample fails only its own request."""
        return [self._response(request) for request in requests]

    def _samples(self, request: Any) -> Iterator[Any]:
        """Yield raw samples: arrays, or dicts of arrays for models with several inputs."""
        names = [each["name"] for each in self.model.manifest.raw.tensors or ()]
        tensors = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in names or ["raw"]]
        return (dict(zip(names, each)) if names else each[0] for each in zip(*tensors))

    def _response(self, request: Any) -> Any:
        try:
            scores, answers = [], []
            for raw in self._samples(request):
                answers.append(json.dumps(self.model.predict(raw).to_dict()).encode())
                scores.append(self.model.scores)
        except InputError as error:
            return _error_response(str(error), pb_utils.TritonError.INVALID_ARG)
        except RunnerError as error:
            return _error_response(str(error), pb_utils.TritonError.INTERNAL)
        tensors = {
            "scores": np.stack(scores).astype(np.float32),
            "answer": np.array(answers, dtype=np.object_).reshape(-1, 1),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in tensors.items()])


def _error_response(text: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
