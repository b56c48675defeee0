"""Models of several inputs over gRPC: raw contents and typed ones, in any order, and answers that are HTTP's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format

from edgekit.runner import load
from edgekit.serve.protocol_buffers import message
from tests.serve.grpc_server import Client, Server, outputs
from tests.serve.several import DATATYPES, FIVE, LARGEST, samples, vectors, write, write_echo
from tests.serve.several import request as json_request
from tests.serve.test_grpc import refused
from tests.serve.test_grpc import start as start
from tests.serve.test_protocol import wire_answer

pytestmark = pytest.mark.processes

CONTENTS = {"FP32": "fp32_contents", "UINT8": "uint_contents", "INT8": "int_contents", "INT32": "int_contents"}
Samples = list[dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("several")
    write("onnx", made)
    write_echo(made)
    return made


@pytest.fixture(scope="module")
def server(start: Any, folder: Path) -> Server:
    found: Server = start("--drain-s", 0, folder)
    return found


@pytest.fixture(scope="module")
def client(server: Server) -> Client:
    return Client(server.grpc)


def request(model: str, many: Samples, raw: bool = True, **fields: Any) -> Any:
    """A ModelInferRequest of samples by name, in the order of their names there; `fields` replace or add."""
    inputs, blocks = [], []
    for name in many[0]:
        x = np.stack([each[name] for each in many])
        datatype = DATATYPES[x.dtype.name]
        tensor: dict[str, Any] = {"name": name, "datatype": datatype, "shape": x.shape}
        if not raw:
            tensor["contents"] = {CONTENTS.get(datatype, "int64_contents"): x.ravel().tolist()}
        inputs.append(tensor)
        blocks.append(x.tobytes())
    given = {"model_name": model, "inputs": inputs, "raw_input_contents": blocks if raw else []}
    return message("ModelInferRequest")(**{**given, **fields})


@pytest.mark.parametrize("raw", [True, False])
def test_fifty_random_samples_get_the_runners_answers(server: Server, client: Client, folder: Path, raw: bool) -> None:
    model = load(folder / "two-onnx.edge.zip", threads=1, trial=False)
    for number, sample in enumerate(samples(50, seed=1)):
        found = outputs(client.infer(request("two", [dict(reversed(sample.items())) if number % 2 else sample], raw)))
        assert found["output"].tobytes() == model.execute(model.prepare(vectors([sample])[0])).tobytes()
        assert json.loads(found["answer"][0]) == wire_answer(model.predict(sample).to_dict())
    theirs = server.json("/v2/models/two/infer", json.loads(json_request([sample])[0]))["outputs"]
    assert {each["name"]: each["data"] for each in theirs}["answer"] == found["answer"]


@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_all_datatypes_arrive_bit_for_bit(client: Client, raw: bool) -> None:
    many = samples(7, FIVE)
    many[0]["large"][:] = [[LARGEST], [-LARGEST]]
    mixed = [dict(sorted(each.items())) for each in many]
    assert outputs(client.infer(request("five", mixed, raw)))["output"].tobytes() == vectors(many).tobytes()
    many[6]["large"][1] = LARGEST + 1
    error = refused(lambda: client.infer(request("five", many, raw)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert f"to {LARGEST + 1}; the bundle takes {-LARGEST} to {LARGEST}" in error.details()


def test_metadata_and_configuration_are_those_of_http(server: Server, client: Client) -> None:
    for model, tensors in (("two", 2), ("five", 5)):
        metadata = json_format.MessageToDict(client.call("ModelMetadata", name=model))
        over_http = server.json(f"/v2/models/{model}")["inputs"]
        assert [{**each, "shape": list(map(int, each["shape"]))} for each in metadata["inputs"]] == over_http
        config = json_format.MessageToDict(client.call("ModelConfig", name=model), preserving_proto_field_name=True)
        inputs = [{**each, "dims": list(map(int, each["dims"]))} for each in config["config"]["input"]]
        assert inputs == server.json(f"/v2/models/{model}/config")["input"]
        assert len(inputs) == tensors


def changed(place: int, **fields: Any) -> Any:
    """A request with another input; what is None is left out."""
    content = json_format.MessageToDict(request("two", samples(1)), preserving_proto_field_name=True)
    content["inputs"][place].update(fields)
    return json_format.ParseDict(content, message("ModelInferRequest")())


ONE = samples(1)[0]
BAD: dict[str, tuple[Any, str]] = {
    "no inputs": (request("two", [ONE], inputs=[], raw_input_contents=[]), "got 0, none; the model takes 2 inputs"),
    "one missing": (request("two", [{"ids": ONE["ids"]}]), "got 1, 'ids'; the model takes 2 inputs, 'picture', 'ids'"),
    "one more": (request("two", [{**ONE, "x": ONE["ids"]}]), "got 3, 'picture', 'ids', 'x'; the model takes 2 inputs"),
    "unknown": (changed(0, name="image"), "inputs[0].name: got 'image'"),
    "doubled": (
        request("two", [ONE], raw_input_contents=[bytes(24)] * 2, inputs=[
            {"name": "ids", "datatype": "INT32", "shape": [1, 6]},
        ] * 2),
        "inputs[1].name: got 'ids' twice; give each once: 'picture', 'ids'",
    ),
    "one block for two": (request("two", [ONE], raw_input_contents=[bytes(64)]), "got 1 for 2 inputs"),
    "three blocks for two": (request("two", [ONE], raw_input_contents=[bytes(64)] * 3), "got 3 for 2 inputs"),
    "blocks of other lengths": (
        request("two", [ONE], raw_input_contents=[bytes(24), bytes(64)]), "raw_input_contents[0]: got 24 bytes"
    ),
    "contents and a block": (
        changed(1, contents={"int_contents": [1] * 6}), "inputs[1]: has contents and raw_input_contents"
    ),
    "contents of another type": (
        request("two", [ONE], False, inputs=[
            {"name": "picture", "datatype": "FP32", "shape": [1, 1, 4, 4], "contents": {"fp32_contents": [0.0] * 16}},
            {"name": "ids", "datatype": "INT32", "shape": [1, 6], "contents": {"int64_contents": [1] * 6}},
        ]),
        "inputs[1].contents: got int64_contents; send INT32 in int_contents",
    ),
    "another datatype": (changed(1, datatype="FP32"), "inputs[1].datatype: got 'FP32'; the sample is INT32"),
    "another shape": (changed(1, shape=["1", "3", "2"]), "inputs[1].shape: got [1, 3, 2]; use [n, 6]"),
    "another count": (
        request("two", [ONE], raw_input_contents=[bytes(64), bytes(48)], inputs=[
            {"name": "picture", "datatype": "FP32", "shape": [1, 1, 4, 4]},
            {"name": "ids", "datatype": "INT32", "shape": [2, 6]},
        ]),
        "inputs[1].shape: got 2 samples; inputs[0] has 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(client: Client, name: str) -> None:
    bad_request, words = BAD[name]
    error = refused(lambda: client.infer(bad_request))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert words in error.details(), error.details()


def test_a_thousand_inputs_are_counted_and_not_read(client: Client) -> None:
    tensor = {"name": "ids", "datatype": "INT32", "shape": [1, 6]}
    error = refused(lambda: client.infer(request("two", [ONE], inputs=[tensor] * 1000)))
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "inputs: got 1000" in error.details() and len(error.details()) < 300
