"""From a raw sample straight to the tensor that a model takes.

Integers that are the model's own, a picture's bytes or the int8 features of a board, are not quantized once more. Where
samples are bytes and every step works element by element, each channel has only 256 possible results. They are computed
once, by the same steps, and then looked up. That is two to five times as fast as the steps and the quantization, and
gives the same bits. Where the model file undoes the steps, as `convert.fold_preprocess` makes it, each byte becomes
itself, or itself less 128 in int8: then nothing is looked up, and the bytes go in.
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
"""Values of a picture up to which places of eight bytes each are quicker to add than channels to take apart."""
Encode = Callable[[np.ndarray], np.ndarray]
EncodeWithSample = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def encoder(manifest: Manifest, backend: Backend) -> Encode:
    """The function from one raw sample to the model's input, in the model's own dtype and layout."""
    steps, layout = manifest.preprocess, manifest.input.layout
    if backend.encode is not None and passes_through(steps, manifest.raw.dtype, manifest.input.dtype):
        return _unchanged(steps, layout, backend.dtype)
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
    """The same function, which also gives the sample after preprocess, for the steps run once.

    Nothing is looked up, because the sample has to be computed in any case.
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
    """The model's input for a sample after preprocess, float32."""
    x = transform.to_layout(sample[None], layout)
    return x if backend.encode is None else backend.encode(x)


def passes_through(steps: Sequence[Step], raw_dtype: str, input_dtype: str) -> bool:
    """Whether a raw sample's integers are what the model takes: of its type, and no step gives them other values."""
    return raw_dtype == input_dtype != "float32" and all(step["step"] in GEOMETRY for step in steps)


def _unchanged(steps: Sequence[Step], layout: str, dtype: np.dtype) -> Encode:
    """Integers that go in as they are; what a resize makes of them is rounded to the nearest."""
    if not steps:
        return lambda raw: transform.to_layout(raw[None], layout)
    pipeline = transform.pipeline(steps)
    return lambda raw: _rounded(pipeline(raw), layout, dtype)


def _rounded(sample: np.ndarray, layout: str, dtype: np.dtype) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.clip(np.rint(transform.to_layout(sample[None], layout)), limits.min, limits.max).astype(dtype)


def _lookup(tables: np.ndarray, layout: str, shape: tuple[int, ...]) -> Encode:
    """`tables` is (256, channels): what each byte of each channel becomes."""
    first = np.ascontiguousarray(tables[:, 0])
    if (tables == first[:, None]).all():
        recode = _as_bytes(first) or first.take
        if layout == "NCHW":
            return lambda raw: np.ascontiguousarray(recode(raw).transpose(2, 0, 1)[None])
        return lambda raw: recode(raw)[None]
    if layout != "NCHW" and prod(shape) <= LARGEST_JOINED:
        return _joined(tables, shape)
    columns = [np.ascontiguousarray(tables[:, channel]) for channel in range(tables.shape[1])]

    def encode(raw: np.ndarray) -> np.ndarray:
        x = np.empty(shape, dtype=tables.dtype)
        for channel, column in enumerate(columns):
            place = x[0, channel] if layout == "NCHW" else x[..., channel]
            place[...] = column.take(raw[..., channel])
        return x

    return encode


def _joined(tables: np.ndarray, shape: tuple[int, ...]) -> Encode:
    """One table behind the other, each channel's values beginning at its own: one look-up instead of one a channel."""
    table = np.ascontiguousarray(tables.T).ravel()
    begins = np.empty(shape, dtype=np.intp)
    begins[...] = np.arange(tables.shape[1]) * len(tables)
    return lambda raw: table.take(begins + raw)


def _as_bytes(table: np.ndarray) -> Encode | None:
    """A faster function than `table.take`, of the same bits, where each byte goes in as it is, or less 128 as int8."""
    each = np.arange(256, dtype=np.uint8)
    if table.dtype == np.uint8 and (table == each).all():
        return np.ascontiguousarray
    middle = np.array(128, dtype=np.uint8)
    if table.dtype != np.int8 or (table.view(np.uint8) != each ^ middle).any():
        return None
    xor, int8 = np.bitwise_xor, table.dtype
    return lambda raw: xor(raw, middle, order="C").view(int8)
