"""Input tensors, by table or as plain bytes, have the bits of the preprocessing steps and the quantization."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.runner import input_encoding
from edgekit.runner.preprocess import transform

STEPS = {
    "one scale": [{"step": "scale", "factor": 1 / 255}],
    "all channels alike": [{"step": "scale", "factor": 1 / 255}, {"step": "normalize", "mean": [0.5], "std": [0.25]}],
    "by channel": [
        {"step": "scale", "factor": 1 / 255},
        {"step": "normalize", "mean": [0.49, 0.48, 0.45], "std": [0.25, 0.24, 0.26]},
    ],
}
QUANTIZERS: dict[str, Any] = {
    "float32": None,
    "int8": lambda x: np.clip(np.rint(x / np.float32(1 / 255)) - 128, -128, 127).astype(np.int8),
    "uint8": lambda x: np.clip(np.rint(x / np.float32(1 / 255)), 0, 255).astype(np.uint8),
}


@pytest.mark.parametrize("side", [9, 110])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", QUANTIZERS)
@pytest.mark.parametrize("steps", STEPS)
def test_a_samples_input_has_the_bits_of_the_steps(steps: str, dtype: str, layout: str, side: int) -> None:
    shape = (side, side + 1, 3)
    assert (np.prod(shape) > input_encoding.LARGEST_JOINED) == (side > 100)
    taken = (1, *shape) if layout == "NHWC" else (1, 3, *shape[:2])
    backend: Any = SimpleNamespace(encode=QUANTIZERS[dtype], shape=taken, dtype=np.dtype(dtype))
    manifest: Any = SimpleNamespace(
        preprocess=STEPS[steps],
        input=SimpleNamespace(layout=layout, dtype=dtype),
        raw=SimpleNamespace(kind="image", shape=shape, dtype="uint8"),
    )
    encode, encode_with_sample = (
        input_encoding.encoder(manifest, backend),
        input_encoding.encoder_with_sample(manifest, backend),
    )
    raw = np.random.default_rng(side).integers(0, 256, shape).astype(np.uint8)
    for sample in (raw, np.asfortranarray(raw), raw[::-1]):
        expected = input_encoding.input_tensor(transform.apply(STEPS[steps], sample), layout, backend)
        found = encode(sample)
        assert np.array_equal(found, expected)
        again, preprocessed = encode_with_sample(sample)
        assert np.array_equal(again, expected) and again.dtype == dtype
        assert np.array_equal(preprocessed, transform.apply(STEPS[steps], sample))
        assert (found.dtype, found.shape, found.flags.c_contiguous) == (dtype, taken, True)
        assert not np.shares_memory(found, sample) or dtype == "uint8"
