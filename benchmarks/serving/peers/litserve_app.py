"""What LitServe runs, in its own environment: `litserve_app.py BUNDLE INTERPRETER PORT WAY`."""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve  # type: ignore[import-not-found]
import numpy as np

from edgekit.runner import bundle
from edgekit.runner.model import open_model


class Api(litserve.LitAPI):
    """The bundle's own preprocess and network, for one sample."""

    def __init__(self, path: str, interpreter: str, **options: Any) -> None:
        super().__init__(**options)
        self.path, self.interpreter = path, interpreter

    def setup(self, device: str) -> None:
        """In the worker process."""
        self.model = open_model(bundle.read(self.path), 1, self.interpreter)
        raw = self.model.manifest.raw
        self.shape, self.dtype = raw.shape, raw.dtype

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # LitServe reads an annotation as a type of body
        """A raw sample."""
        return np.frombuffer(base64.b64decode(request["sample"]), self.dtype).reshape(self.shape)

    def predict(self, sample: Any) -> Any:
        """Its output."""
        return self.model.execute(self.model.prepare(sample))

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        """JSON."""
        return {"output": output.tolist()}


class Batched(Api):
    """The same for those that wait together; the network takes one at a time."""

    def batch(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        """As they came."""
        return inputs

    def predict(self, sample: Any) -> Any:
        """Each one's output."""
        return [self.model.execute(self.model.prepare(each)) for each in sample]

    def unbatch(self, output: list[np.ndarray]) -> list[np.ndarray]:
        """Each its own."""
        return output


if __name__ == "__main__":
    tuned = sys.argv[4] == "tuned"
    api = Batched(*sys.argv[1:3], max_batch_size=8, batch_timeout=0.0) if tuned else Api(*sys.argv[1:3])
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, fast_queue=tuned)
    server.run(host="127.0.0.1", port=int(sys.argv[3]), log_level="error", generate_client_file=False)
