"""What MLServer runs, in its own environment."""

from __future__ import annotations

import numpy as np
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import Base64Codec, NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse  # type: ignore[import-not-found]

from edgekit.runner import bundle
from edgekit.runner.model import open_model


class Model(MLModel):
    """The bundle's own preprocess and network."""

    async def load(self) -> bool:
        """Open the bundle."""
        parameters = self.settings.parameters
        self.model = open_model(bundle.read(parameters.uri), 1, parameters.extra["interpreter"])
        raw = self.model.manifest.raw
        self.shape, self.dtype = raw.shape, raw.dtype
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Raw bytes to outputs."""
        tensor = payload.inputs[0]
        if tensor.datatype == "BYTES":
            [content] = Base64Codec.decode_input(tensor)
            raw = np.frombuffer(content, self.dtype).reshape(self.shape)
        else:
            [raw] = NumpyCodec.decode_input(tensor)
        output = self.model.execute(self.model.prepare(raw))[None]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("output", output)])
