"""What a gRPC client sizes is bounded before any work on it, so no message takes more time or memory than its bytes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("google.protobuf")

from edgekit.serve import grpc_wire, wire
from edgekit.serve.errors import RequestError
from edgekit.serve.protocol_buffers import message
from edgekit.serve.wire import MultipleInputs

IMAGE = wire.TensorInput("image", "UINT8", (8, 8, 1))
TWO = MultipleInputs([IMAGE, wire.TensorInput("more", "FP32", (2,))], [None, None])
MOST = 8 << 20
IN_TIME_S = 0.5


def request(**fields: Any) -> Any:
    tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 8, 8, 1]}
    return message("ModelInferRequest")(**{"inputs": [tensor], "raw_input_contents": [bytes(64)], **fields})


def parsed(body: bytes, tensors: Any = IMAGE) -> wire.InferRequest:
    """As the server takes a message."""
    grpc_wire.check_size(body, True, MOST)
    return grpc_wire.parse(message("ModelInferRequest").FromString(body), tensors, ("output", "answer"))


def shaped(shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": "image", "datatype": "UINT8", "shape": shape, **more}


def test_a_plain_request_is_taken_whatever_its_length() -> None:
    assert parsed(request().SerializeToString()).samples.shape == (1, 8, 8, 1)
    large = wire.TensorInput("image", "FP32", (1000, 1000))
    infer_request = request(
        inputs=[{"name": "image", "datatype": "FP32", "shape": [3, 1000, 1000]}], raw_input_contents=[bytes(12_000_000)]
    )
    assert parsed(infer_request.SerializeToString(), large).samples.shape == (3, 1000, 1000)


@pytest.mark.parametrize("tensors", [IMAGE, TWO], ids=["one input", "several"])
@pytest.mark.parametrize(
    ("sides", "count"), [(127, 600_000), (2**62, 300), (2**62, 20_000), (127, 100_000), (0, 70_000), (-1, 3_000)]
)
def test_a_shape_of_many_sides_is_refused_at_once(sides: int, count: int, tensors: Any) -> None:
    inputs = [shaped([sides] * count)] * len(tensors.inputs)
    raws = [b"x"] * len(inputs)
    body = request(inputs=inputs, raw_input_contents=raws).SerializeToString()
    began = time.perf_counter()
    with pytest.raises(RequestError, match=f"got {count} dimensions") as caught:
        parsed(body, tensors)
    assert time.perf_counter() - began < IN_TIME_S
    assert caught.value.status == 400


def parameters(count: int) -> dict[str, Any]:
    return {str(number): message("InferParameter")(int64_param=number) for number in range(count)}


WRONG: dict[str, tuple[Any, int]] = {
    "many inputs": (request(inputs=[shaped([1])] * 200_000), 400),
    "a few too many inputs": (request(inputs=[shaped([1])] * 100), 400),
    "many outputs": (request(outputs=[{}] * 2_000_000), 400),
    "a few too many outputs": (request(outputs=[{"name": "output"}] * 100), 400),
    "many buffers": (request(raw_input_contents=[b""] * 2_000_000), 400),
    "many parameters": (request(parameters=parameters(50_000)), 400),
    "a few too many parameters": (request(parameters=parameters(100)), 400),
    "many parameters of an output": (request(outputs=[{"name": "output", "parameters": parameters(50_000)}]), 400),
    "typed contents that are too long": (
        request(inputs=[shaped([1, 8, 8, 1], contents={"uint_contents": [1] * 9_000_000})], raw_input_contents=[]), 413,
    ),
    "a long name": (request(inputs=[{"name": "x" * 9_000_000}]), 413),
    "a name": (request(inputs=[{"name": "x" * 1_000_000}]), 400),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_too_many_or_too_long_is_refused_at_once(case: str) -> None:
    infer_request, status = WRONG[case]
    body = infer_request.SerializeToString()
    began = time.perf_counter()
    with pytest.raises(RequestError) as caught:
        parsed(body)
    assert time.perf_counter() - began < IN_TIME_S
    assert caught.value.status == status
    assert len(caught.value.text) < 600


@pytest.mark.parametrize("cut", range(70_000, 70_060, 7))
def test_a_message_that_is_cut_off_is_left_to_the_parser(cut: int) -> None:
    body = request(raw_input_contents=[bytes(80_000)]).SerializeToString()
    grpc_wire.check_size(body[:cut], True, MOST)
    grpc_wire.check_size(b"\xff" * cut, True, MOST)


def test_a_message_that_asks_no_model_is_short() -> None:
    grpc_wire.check_size(bytes(60_000), False, MOST)
    with pytest.raises(RequestError, match="at most 65536"):
        grpc_wire.check_size(bytes(70_000), False, MOST)


def test_several_inputs_are_taken_still() -> None:
    infer_request = request(
        inputs=[shaped([1, 8, 8, 1]), {"name": "more", "datatype": "FP32", "shape": [1, 2]}],
        raw_input_contents=[bytes(64), np.zeros(2, "<f4").tobytes()],
    )
    assert parsed(infer_request.SerializeToString(), TWO).samples.shape == (1, 66)
