"""A file that holds the preprocess steps says what it makes of a byte, and the runner gives it bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgekit.runner.backends import byte_inputs
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.runner.errors import BackendError
from edgekit.runner.input_encoding import encoder
from edgekit.runner.preprocess import transform

SCALE, MEAN, STD = 1 / 255, [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]
STEPS: list[dict[str, Any]] = [{"step": "scale", "factor": SCALE}, {"step": "normalize", "mean": MEAN, "std": STD}]
REMARK = byte_inputs.format_remark([SCALE / each for each in STD], [-mean / std for mean, std in zip(MEAN, STD)])
EVERY = np.resize(np.arange(256, dtype=np.uint8), (16, 16, 3))


def spec(layout: str = "NCHW", dtype: str = "uint8") -> TensorSpec:
    return TensorSpec("input", (1, 3, 16, 16) if layout == "NCHW" else (1, 16, 16, 3), dtype, layout)


def content(remark: str = REMARK) -> bytes:
    return b'\x00<rt_info><edgekit value="' + remark.encode() + b'"/></rt_info>\xff'


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_every_byte_comes_back_from_what_the_steps_made_of_it(layout: str) -> None:
    to_bytes = byte_inputs.byte_encoder(content(), [spec(layout)])
    assert to_bytes is not None
    x = transform.to_layout(transform.apply(STEPS, EVERY)[None], layout)
    assert np.array_equal(to_bytes(x), transform.to_layout(EVERY[None], layout))
    assert to_bytes(x + 100).max() == to_bytes(x + 100).min() == 255 and to_bytes(x - 100).max() == 0


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_raw_sample_goes_in_as_it_is(layout: str) -> None:
    takes = spec(layout)
    backend: Any = SimpleNamespace(
        encode=byte_inputs.byte_encoder(content(), [takes]), shape=takes.shape, dtype=np.uint8
    )
    raw = SimpleNamespace(kind="image", shape=(16, 16, 3), dtype="uint8")
    encode = encoder(SimpleNamespace(preprocess=STEPS, input=takes, raw=raw), backend)  # type: ignore[arg-type]
    x = encode(EVERY)
    assert x.dtype == np.uint8 and np.array_equal(x, transform.to_layout(EVERY[None], layout))
    assert x.flags.c_contiguous


def test_one_scale_serves_a_vector() -> None:
    to_bytes = byte_inputs.byte_encoder(
        content(byte_inputs.format_remark([0.5], [-3.0])), [TensorSpec("v", (1, 4), "uint8", "NC")]
    )
    assert to_bytes is not None
    assert to_bytes(np.array([[-3.0, -2.5, 0.0, 124.5]], dtype=np.float32)).tolist() == [[0, 1, 6, 255]]


@pytest.mark.parametrize(
    ("remark", "inputs"),
    [
        ("", [spec()]),
        (REMARK, [spec(dtype="float32")]),
        (REMARK, [spec(), spec()]),
        ("bytes=[[1],oh]", [spec()]),
    ],
    ids=["no remark", "floats", "two inputs", "no remark of ours"],
)
def test_other_files_are_taken_as_before(remark: str, inputs: list[TensorSpec]) -> None:
    assert byte_inputs.byte_encoder(content(remark), inputs) is None


@pytest.mark.parametrize(
    "remark",
    ["[[1,,2],[0]]", "[[1,2],[0,0]]", "[[1,2,3],[0]]", "[[0],[0]]", "[[-1],[0]]", "[[1e999],[0]]", "[[1],[1e39]]"],
)
def test_a_remark_that_does_not_fit_is_refused_in_words(remark: str) -> None:
    with np.errstate(over="ignore"), pytest.raises(BackendError, match=r"3 channels; build the bundle again"):
        byte_inputs.byte_encoder(content(f"bytes={remark}"), [spec()])


def test_a_remark_is_found_as_it_was_written() -> None:
    assert byte_inputs.find_remark(content()) == REMARK.encode() and byte_inputs.find_remark(b"bytes=") == b""
