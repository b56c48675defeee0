"""A served bundle on Triton, under the names that edgekit's own server gives its tensors. Copied as `model.py`.

Both servers then take the same bytes, and whatever differs is theirs. A file `unchecked` beside this one leaves out the
bundle's check of the sample, which Triton itself has not.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "edgerun.pyz"))

from edgekit.runner import bundle  # noqa: E402  (out of the archive)
from edgekit.runner.errors import InputError  # noqa: E402
from edgekit.runner.model import open_model  # noqa: E402


class TritonPythonModel:
    """What Triton calls."""

    def initialize(self, args: Any) -> None:
        """Open the bundle."""
        self.input = json.loads(args["model_config"])["input"][0]["name"]
        self.checks = not os.path.exists(os.path.join(HERE, "unchecked"))
        self.model = open_model(bundle.read(os.path.join(HERE, "bundle.edge.zip")), 1)

    def execute(self, requests: Any) -> list[Any]:
        """A response for each request; a sample that the bundle does not take fails its own request alone."""
        return [self._response(request) for request in requests]

    def _response(self, request: Any) -> Any:
        samples = pb_utils.get_input_tensor_by_name(request, self.input).as_numpy()
        try:
            inputs = [self.model.prepare(raw) if self.checks else raw[None] for raw in samples]
        except InputError as error:
            refused = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=refused)
        outputs = np.stack([self.model.execute(x) for x in inputs]).astype(np.float32)
        tensors = [pb_utils.Tensor("output", outputs)]
        if self.checks:
            texts = [self._answer(raw, row) for raw, row in zip(samples, outputs)]
            tensors.append(pb_utils.Tensor("answer", np.array(texts, np.object_).reshape(-1, 1)))
        return pb_utils.InferenceResponse(tensors)

    def _answer(self, raw: np.ndarray, outputs: np.ndarray) -> bytes:
        facts = self.model.answer(raw, outputs, 5, {}).to_dict()
        return json.dumps({key: each for key, each in facts.items() if key not in ("scores", "timing_ms")}).encode()
