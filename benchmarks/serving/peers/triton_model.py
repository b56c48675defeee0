"""The model that Triton's Python backend runs: the bundle's own preprocessing and network.

This file is copied into Triton's model repository as `model.py`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]


class TritonPythonModel:
    """The class that Triton calls."""

    def initialize(self, args: Any) -> None:
        """Open the bundle."""
        parameters = {key: each["string_value"] for key, each in json.loads(args["model_config"])["parameters"].items()}
        sys.path.insert(0, parameters["root"])
        from edgekit.runner import bundle
        from edgekit.runner.model import open_model

        self.model = open_model(bundle.read(parameters["bundle"]), 1, parameters["interpreter"])

    def execute(self, requests: Any) -> list[Any]:
        """Answer the samples of each request one by one."""
        responses = []
        for request in requests:
            samples = pb_utils.get_input_tensor_by_name(request, "raw").as_numpy()
            outputs = np.stack([self.model.execute(self.model.prepare(raw)) for raw in samples])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("output", outputs.astype(np.float32))]))
        return responses
