"""A bundle on Triton's Python backend: raw samples in, scores and the bundle's own answer out.

This file is copied as `model.py`. Beside it lie the bundle and the runner, so the server's Python needs numpy and the
bundle's interpreter alone.
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


class Watched(Model):
    """A model that keeps the outputs of its last run: `predict` gives the answer made of them alone."""

    scores: np.ndarray

    def execute(self, x: np.ndarray, states: States | None = None) -> np.ndarray:
        """See `Model`."""
        self.scores = super().execute(x, states)
        return self.scores


class TritonPythonModel:
    """What Triton calls."""

    def initialize(self, args: Any) -> None:
        """Verify the bundle, open it, and refuse to serve it unless its golden vectors come out as recorded."""
        opened = open_model(bundle.read(os.path.join(HERE, "bundle.edge.zip")))
        self.model = Watched(opened.bundle, opened.backend, opened.threads)
        report = self.model.selftest()
        if not report.ok:
            raise pb_utils.TritonModelException(
                f"the golden vectors did not come out as recorded: off by {report.max_abs_delta:.3g}, "
                f"{report.atol:.3g} is allowed"
            )

    def execute(self, requests: Any) -> list[Any]:
        """A response for each request; a sample that does not fit fails its own request alone."""
        return [self._response(request) for request in requests]

    def _samples(self, request: Any) -> Iterator[Any]:
        """Raw samples: arrays, or, where the model has several inputs, arrays by name."""
        names = [each["name"] for each in self.model.manifest.raw.tensors or ()]
        found = [pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in names or ["raw"]]
        return (dict(zip(names, each)) if names else each[0] for each in zip(*found))

    def _response(self, request: Any) -> Any:
        try:
            scores, answers = [], []
            for raw in self._samples(request):
                answers.append(json.dumps(self.model.predict(raw).to_dict()).encode())
                scores.append(self.model.scores)
        except InputError as error:
            return _failed(str(error), pb_utils.TritonError.INVALID_ARG)
        except RunnerError as error:
            return _failed(str(error), pb_utils.TritonError.INTERNAL)
        tensors = {
            "scores": np.stack(scores).astype(np.float32),
            "answer": np.array(answers, dtype=np.object_).reshape(-1, 1),
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in tensors.items()])


def _failed(text: str, code: Any) -> Any:
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(text, code))
