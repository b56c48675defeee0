"""The app that LitServe runs in its own environment: `litserve_app.py BUNDLE INTERPRETER PORT SETUP`."""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve  # type: ignore[import-not-found]
import numpy as np

from edgekit.runner import bundle
from edgekit.runner.model import open_model


class Api(litserve.LitAPI):
    """The bundle's own preprocessing and network for one sample."""

    def __init__(self, path: str, interpreter: str) -> None:
        super().__init__()
        self.path, self.interpreter = path, interpreter

    def setup(self, device: str) -> None:
        """Open the bundle in the worker process."""
        self.model = open_model(bundle.read(self.path), 1, self.interpreter)
        raw = self.model.manifest.raw
        self.shape, self.dtype = raw.shape, raw.dtype

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads an annotation as a type of body
        """Return the raw sample."""
        return np.frombuffer(base64.b64decode(request["sample"]), self.dtype).reshape(self.shape)

    def predict(self, sample: Any) -> Any:
        """Return the output."""
        return self.model.execute(self.model.prepare(sample))

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        """Return the JSON of the answer."""
        return {"output": output.tolist()}


if __name__ == "__main__":
    api = Api(*sys.argv[1:3])
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=sys.argv[4] == "tuned")
    server.run(host="127.0.0.1", port=int(sys.argv[3]), log_level="error", generate_client_file=False)
