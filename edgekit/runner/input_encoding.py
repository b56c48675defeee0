"""Convert a raw sample directly into the tensor that a model takes.

Integers that the model takes as they are, such as a picture's bytes or a board's int8 features, are not quantized
again. If samples are bytes and every step is element-wise, each channel has only 256 possible results. They are
computed once, by the same steps, and then looked up, which is two to five times as fast as running the steps and the
quantization, and gives the same bits. If the model file already contains the steps, which the option
`convert.fold_preprocess` arranges, each byte maps to itself, or to itself minus 128 for int8. In that case nothing is
looked up, and the bytes go in directly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from edgekit.runner.preprocess import transform
from edgekit.runner.preprocess.steps import GEOMETRY

if TYPE_CHECKING:
    from edgekit.runner.backends import Backend
    from edgekit.runner.bundle.manifest import Manifest
    from edgekit.runner.preprocess.steps import Step

ELEMENTWISE = ("scale", "normalize")
LARGEST_JOINED = 2**15
"""Largest picture, in values, for which adding 8-byte offsets is faster than handling the channels one by one."""
Encode = Callable[[np.ndarray], np.ndarray]
EncodeWithSample = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def encoder(manifest: Manifest, backend: Backend) -> Encode:
    """Return the function that converts one raw sample to the model's input, in the model's own dtype and layout."""
    steps, layout = manifest.preprocess, manifest.input.layout
    if backend.encode is not None and passes_through(steps, manifest.raw.dtype, manifest.input.dtype):
        return _passthrough(steps, layout, backend.dtype)
    pipeline, is_plain = transform.pipeline(steps), backend.encode is None and layout != "NCHW"

    def encode(raw: np.ndarray) -> np.ndarray:
        x = pipeline(raw)
        return np.ascontiguousarray(x[None]) if is_plain else input_tensor(x, layout, backend)

    operations = len(steps) + (backend.encode is not None)
    if manifest.raw.dtype != "uint8" or operations < 2 or any(step["step"] not in ELEMENTWISE for step in steps):
        return encode
    channels = manifest.raw.shape[-1] if manifest.raw.kind == "image" else 1
    values = np.repeat(np.arange(256, dtype=np.uint8)[:, None], channels, axis=1)
    tables = pipeline(values)
    if tables.shape != values.shape:  # a vector normalized feature by feature
        return encode
    if backend.encode is not None:
        tables = backend.encode(tables)
    return _lookup(tables, layout, backend.shape)


def encoder_with_sample(manifest: Manifest, backend: Backend) -> EncodeWithSample:
    """Return a function like that of `encoder` that returns the preprocessed sample, too.

    The steps then need to run only once. The function never uses a lookup table, because it has to compute the sample
    in any case.
    """
    steps, layout = manifest.preprocess, manifest.input.layout
    pipeline = transform.pipeline(steps)
    is_unchanged = backend.encode is not None and passes_through(steps, manifest.raw.dtype, manifest.input.dtype)

    def encode(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sample = pipeline(raw)
        return (
            _rounded(sample, layout, backend.dtype) if is_unchanged else input_tensor(sample, layout, backend)
        ), sample

    return encode


def input_tensor(sample: np.ndarray, layout: str, backend: Backend) -> np.ndarray:
    """Return the model's input for a preprocessed float32 sample."""
    x = transform.to_layout(sample[None], layout)
    return x if backend.encode is None else backend.encode(x)


def passes_through(steps: Sequence[Step], raw_dtype: str, input_dtype: str) -> bool:
    """Whether the model takes the integers of a raw sample: the dtypes are equal, and no step changes the values."""
    return raw_dtype == input_dtype != "float32" and all(step["step"] in GEOMETRY for step in steps)


def _passthrough(steps: Sequence[Step], layout: str, dtype: np.dtype) -> Encode:
    """Return an encoder for integers that go in as they are. The results of a resize are rounded."""
    if not steps:
        return lambda raw: transform.to_layout(raw[None], layout)
    pipeline = transform.pipeline(steps)
    return lambda raw: _rounded(pipeline(raw), layout, dtype)


def _rounded(sample: np.ndarray, layout: str, dtype: np.dtype) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(transform.to_layout(sample[None], layout)), limits.min, limits.max).astype(dtype)


def _lookup(tables: np.ndarray, layout: str, shape: tuple[int, ...]) -> Encode:
    """Return an encoder that looks up `tables` (256, channels), which hold the result for each byte and channel."""
    first = np.ascontiguousarray(tables[:, 0])
    if (tables == first[:, None]).all():
        recode = _as_bytes(first) or first.take
        if layout == "NCHW":
            return lambda raw: np.ascontiguousarray(recode(raw).transpose(2, 0, 1)[None])
        return lambda raw: recode(raw)[None]
    if layout != "NCHW" and prod(shape) <= LARGEST_JOINED:
        return _joined_lookup(tables, shape)
    columns = [np.ascontiguousarray(tables[:, channel]) for channel in range(tables.shape[1])]

    def encode(raw: np.ndarray) -> np.ndarray:
        x = np.empty(shape, dtype=tables.dtype)
        for channel, column in enumerate(columns):
            target = x[0, channel] if layout == "NCHW" else x[..., channel]
            target[...] = column.take(raw[..., channel])
        return x

    return encode


def _joined_lookup(tables: np.ndarray, shape: tuple[int, ...]) -> Encode:
    """Return an encoder with one concatenated table, so that one lookup serves all channels."""
    table = np.ascontiguousarray(tables.T).ravel()
    offsets = np.empty(shape, dtype=np.intp)
    offsets[...] = np.arange(tables.shape[1]) * len(tables)
    return lambda raw: table.take(offsets + raw)


def _as_bytes(table: np.ndarray) -> Encode | None:
    """Return a faster equivalent of `table.take`, or None.

    There is one if each byte maps to itself, or to itself minus 128 as int8.
    """
    all_bytes = np.arange(256, dtype=np.uint8)
    if table.dtype == np.uint8 and (table == all_bytes).all():
        return np.ascontiguousarray
    middle = np.array(128, dtype=np.uint8)
    if table.dtype != np.int8 or (table.view(np.uint8) != all_bytes ^ middle).any():
        return None
    xor, int8 = np.bitwise_xor, table.dtype
    return lambda raw: xor(raw, middle, order="C").view(int8)
