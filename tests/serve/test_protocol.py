"""The Open Inference Protocol v2 over HTTP: by an unchanged client, and by bytes that are written out."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as client  # type: ignore[import-untyped]
import tritonclient.http.aio as client_aio  # type: ignore[import-untyped]
from tritonclient.utils import InferenceServerException  # type: ignore[import-untyped]

from edgekit import __version__
from edgekit.runner import load
from tests.runner.conftest import LABELS
from tests.serve.conftest import KEYS, Start
from tests.serve.server import Reply, Server

pytestmark = pytest.mark.processes

LENGTH = "inference-header-content-length"
ONNX = "/v2/models/tiny-onnx"


@pytest.fixture(scope="module")
def server(start: Start, folder: Path) -> Server:
    return start(folder, "--workers", 2)


@pytest.fixture(scope="module")
def floats(start: Start, kinds: Path) -> Server:
    return start(kinds / "pixels.edge.zip")


@pytest.fixture(scope="module")
def golden(bundles: dict[str, Path]) -> dict[str, tuple[np.ndarray, np.ndarray, list[Any]]]:
    """By name: raw samples, the runner's outputs for them, the runner's answers."""
    found = {}
    for key, name in KEYS.items():
        model = load(bundles[key], threads=1)
        images, _ = model.golden()
        outputs = np.stack([model.execute(model.prepare(image)) for image in images])
        found[name] = (images, outputs, [wire_answer(model.predict(image).to_dict()) for image in images])
    return found


def wire_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """What of an answer goes over the wire, after JSON."""
    kept = {key: value for key, value in answer.items() if key not in ("scores", "timing_ms")}
    return dict(json.loads(json.dumps(kept)))


def request(data: Any = None, **changes: Any) -> dict[str, Any]:
    """One good request of one sample; `changes` go to its input."""
    values = [7] * 64 if data is None else data
    return {"inputs": [{"name": "image", "shape": [1, 8, 8, 1], "datatype": "UINT8", "data": values, **changes}]}


def outputs(reply: Reply) -> dict[str, dict[str, Any]]:
    """Of a JSON answer, by name."""
    assert reply.status == 200, reply.body
    return {output["name"]: output for output in reply.json()["outputs"]}


def raw(server: Server, image: np.ndarray, path: str = ONNX) -> Reply:
    return server.post(f"{path}/infer", image.tobytes(), {LENGTH: "0"})


def binary(reply: Reply) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The header of an answer, and the bytes of its binary outputs."""
    assert reply.status == 200, reply.body
    length = int(reply.headers[LENGTH])
    header, rest = json.loads(reply.body[:length]), reply.body[length:]
    found = {}
    for output in header["outputs"]:
        size = output.get("parameters", {}).get("binary_data_size")
        if size is not None:
            found[output["name"]], rest = rest[:size], rest[size:]
    assert rest == b""
    return header, found


@pytest.mark.parametrize("name", KEYS.values())
def test_json_binary_and_raw_give_the_runners_bits_for_all_golden_vectors(
    server: Server, golden: dict[str, Any], name: str
) -> None:
    images, expected, answers = golden[name]
    path = f"/v2/models/{name}"
    for image, output, answer in zip(images, expected, answers):
        given = outputs(server.post(f"{path}/infer", request(image.ravel().tolist())))
        assert np.array_equal(np.array(given["output"]["data"], np.float32), output)
        assert json.loads(given["answer"]["data"][0]) == answer
        header, found = binary(raw(server, image, path))
        assert [each["name"] for each in header["outputs"]] == ["output"]
        assert found["output"] == output.tobytes()
    both = server.post(f"{path}/infer", request(images.reshape(-1).tolist(), shape=[16, 8, 8, 1]))
    many = np.array(outputs(both)["output"]["data"], np.float32).reshape(16, 3)
    np.testing.assert_allclose(many, expected, atol=1e-5)
    assert [json.loads(text)["label"] for text in outputs(both)["answer"]["data"]] == [a["label"] for a in answers]


@pytest.mark.parametrize("name", [*KEYS.values(), "tiny"])
def test_an_unchanged_client_is_served(server: Server, golden: dict[str, Any], name: str) -> None:
    images, expected, answers = golden[name if name in golden else "tiny-onnx"]
    with client.InferenceServerClient(server.url) as triton:
        assert triton.is_server_live()
        assert triton.is_server_ready()
        assert triton.is_model_ready(name)
        assert triton.is_model_ready(name, "1.2.0")
        assert triton.get_server_metadata()["version"] == __version__
        facts = triton.get_model_metadata(name)
        assert facts["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, 8, 8, 1]}]
        assert facts["outputs"][0] == {"name": "output", "datatype": "FP32", "shape": [-1, 3]}
        assert facts["versions"] == ["1.2.0"]
        config = triton.get_model_config(name)
        assert config["input"][0] == {"name": "image", "data_type": "TYPE_UINT8", "dims": [8, 8, 1]}
        assert config["instance_group"][0]["count"] == 2
        for is_binary in (True, False):
            given = client.InferInput("image", [1, 8, 8, 1], "UINT8")
            given.set_data_from_numpy(images[0][None], binary_data=is_binary)
            for answer_binary in (True, False):
                requested = [
                    client.InferRequestedOutput("output", binary_data=answer_binary),
                    client.InferRequestedOutput("answer", binary_data=not answer_binary),
                ]
                found = triton.infer(name, [given], outputs=requested, request_id="seven", model_version="1.2.0")
                np.testing.assert_allclose(found.as_numpy("output")[0], expected[0], atol=1e-5)
                assert found.get_response()["id"] == "seven"
                [text] = found.as_numpy("answer").ravel()
                assert json.loads(text)["label"] == answers[0]["label"]
            found = triton.infer(name, [given])
            assert found.as_numpy("output").shape == (1, 3)
        waiting = [triton.async_infer(name, [given]) for _ in range(4)]
        assert [each.get_result().as_numpy("output").shape for each in waiting] == [(1, 3)] * 4
        for algorithm in ("gzip", "deflate"):
            with pytest.raises(InferenceServerException, match=r"\[415\]"):
                triton.infer(name, [given], request_compression_algorithm=algorithm)
        assert triton.infer(name, [given], response_compression_algorithm="gzip").as_numpy("output").shape == (1, 3)
        with pytest.raises(InferenceServerException, match="nobody"):
            triton.infer("nobody", [given])


def test_the_asyncio_client_is_served(server: Server, golden: dict[str, Any]) -> None:
    images, expected, _ = golden["tiny-tflite"]

    async def ask_all() -> list[np.ndarray]:
        async with client_aio.InferenceServerClient(server.url) as triton:
            assert await triton.is_server_ready()

            async def one(image: np.ndarray) -> np.ndarray:
                given = client_aio.InferInput("image", [1, 8, 8, 1], "UINT8")
                given.set_data_from_numpy(image[None])
                found = await triton.infer("tiny-tflite", [given])
                return np.asarray(found.as_numpy("output")[0])

            return list(await asyncio.gather(*(one(image) for image in images)))

    np.testing.assert_allclose(asyncio.run(ask_all()), expected, atol=1e-5)


def test_classification_gives_values_indexes_and_labels(server: Server, golden: dict[str, Any]) -> None:
    images, expected, _ = golden["tiny-onnx"]
    with client.InferenceServerClient(server.url) as triton:
        given = client.InferInput("image", [16, 8, 8, 1], "UINT8")
        given.set_data_from_numpy(images)
        for is_binary in (True, False):
            requested = [client.InferRequestedOutput("output", binary_data=is_binary, class_count=2)]
            texts = triton.infer("tiny-onnx", [given], outputs=requested).as_numpy("output")
            assert texts.shape == (16, 2)
            for row, scores in zip(texts, expected):
                for text, index in zip(row, np.argsort(-scores)):
                    value, number, label = (text.decode() if isinstance(text, bytes) else text).split(":")
                    assert (int(number), label) == (index, LABELS[index])
                    assert float(value) == pytest.approx(scores[index], abs=1e-5)
        requested = [client.InferRequestedOutput("output", class_count=99)]
        assert triton.infer("tiny-onnx", [given], outputs=requested).as_numpy("output").shape == (16, 3)


def test_outputs_may_be_mixed_and_parameters_say_the_form(server: Server, golden: dict[str, Any]) -> None:
    images, expected, answers = golden["tiny-onnx"]
    body = request(images[0].ravel().tolist())
    mixed = [{"name": "answer"}, {"name": "output", "parameters": {"binary_data": True}}]
    header, found = binary(server.post(f"{ONNX}/infer", {"id": "a", **body, "outputs": mixed}))
    assert header["id"] == "a"
    assert json.loads(header["outputs"][0]["data"][0]) == answers[0]
    assert found == {"output": expected[0].tobytes()}
    header, found = binary(server.post(f"{ONNX}/infer", {**body, "parameters": {"binary_data_output": True}}))
    assert set(found) == {"output", "answer"}
    assert json.loads(found["answer"][4:]) == answers[0]
    assert int.from_bytes(found["answer"][:4], "little") == len(found["answer"]) - 4


def test_an_empty_list_of_outputs_means_all_of_them(server: Server, golden: dict[str, Any]) -> None:
    body = request(golden["tiny-onnx"][0][0].ravel().tolist())
    given = outputs(server.post(f"{ONNX}/infer", {**body, "outputs": []}))
    assert list(given) == ["output", "answer"]
    assert given == outputs(server.post(f"{ONNX}/infer", body))


def test_binary_inputs_take_their_size_from_the_header(server: Server, golden: dict[str, Any]) -> None:
    images, expected, _ = golden["tiny-onnx"]
    pixels = images[0].tobytes()

    def send(size: Any, rest: bytes, length: int | str | None = None) -> Reply:
        [tensor] = request(parameters={"binary_data_size": size})["inputs"]
        del tensor["data"]
        header = json.dumps({"inputs": [tensor]}).encode()
        return server.post(f"{ONNX}/infer", header + rest, {LENGTH: str(len(header) if length is None else length)})

    assert np.array_equal(np.array(outputs(send(64, pixels))["output"]["data"], np.float32), expected[0])
    for size, rest, length in (
        (63, pixels[1:], None), (65, pixels + b"x", None), (64, pixels + b"x", None), (64, pixels[1:], None),
        (-64, pixels, None), ("64", pixels, None), (64.0, pixels, None), (True, pixels, None), (2**70, pixels, None),
        (64, pixels, 10_000), (64, pixels, 5), (64, pixels, "x"), (64, pixels, -1), (64, pixels, "9" * 400),
    ):  # fmt: skip
        reply = send(size, rest, length)
        assert reply.status == 400, (size, length)
        assert reply.error


@pytest.mark.parametrize("size", [0, 1, 63, 65, 128])
def test_a_raw_body_of_another_size_is_refused(server: Server, size: int) -> None:
    reply = server.post(f"{ONNX}/infer", b"x" * size, {LENGTH: "0"})
    assert reply.status == 400
    assert "64 bytes" in reply.error


BAD: list[Any] = [
    b"", b"{", b"nonsense", b"[]", b"7", b"null", b"\xff\xfe", b"{}", {"inputs": []}, {"inputs": {}}, {"inputs": [7]},
    {"inputs": [{}]}, {"inputs": [*request()["inputs"], *request()["inputs"]]}, {"inputs": request()["inputs"] * 100},
    request(name="input"), request(name=None), request(name=["image"]), request(datatype="FP32"),
    request(datatype="uint8"), request(datatype=None), request(shape=[8, 8, 1]), request(shape=[1, 8, 8]),
    request(shape=[1, 1, 8, 8]), request(shape=[2, 8, 8, 1]), request(shape=[0, 8, 8, 1]), request(shape=[-1, 8, 8, 1]),
    request(shape=[257, 8, 8, 1]), request(shape=[10**30, 8, 8, 1]), request(shape=[True, 8, 8, 1]),
    request(shape=[1.0, 8, 8, 1]), request(shape="1"), request(shape=None), request([7] * 63), request([7] * 65),
    request([]), request([256] * 64), request([-1] * 64), request([0.5] * 64), request([7.0] * 64), request(["7"] * 64),
    request([None] * 64), request([True] * 64), request([[7] * 8] * 8), request([[7] * 32, [7] * 31]),
    request([10**30] * 64), request([2**64] * 64), request("AAAA"), request(7), request({}), request(parameters=7),
    request(parameters={"binary_data_size": 64}), {**request(), "id": 7}, {**request(), "id": "x" * 300},
    {**request(), "parameters": []}, {**request(), "parameters": None}, {**request(), "outputs": "output"},
    {**request(), "outputs": {}}, {**request(), "outputs": [7]}, {**request(), "outputs": [{"name": "scores"}]},
    {**request(), "outputs": [{"name": None}]}, {**request(), "outputs": [{"name": "output"}] * 17},
    {**request(), "outputs": [{"name": "output", "parameters": {"binary_data": 1}}]},
    {**request(), "outputs": [{"name": "output", "parameters": {"classification": -1}}]},
    {**request(), "outputs": [{"name": "output", "parameters": {"classification": "2"}}]},
    {**request(), "outputs": [{"name": "answer", "parameters": {"classification": 2}}]},
    {**request(), "parameters": {"timeout": -1}}, {**request(), "parameters": {"timeout": "1"}},
    {**request(), "parameters": {"binary_data_output": "yes"}},
    b'{"inputs": ' + b"[" * 100_000, b"[" * 2000 + b"]" * 2000, b'{"a":' * 2000 + b"1" + b"}" * 2000,
    json.dumps(request([math.nan] * 64)).encode(), json.dumps(request([math.inf] * 64)).encode(),
    json.dumps(request([math.nan] * 64)).replace("NaN", "1e999").encode(),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(BAD)))
def test_a_bad_request_gets_400_and_a_sentence(server: Server, number: int) -> None:
    reply = server.post(f"{ONNX}/infer", BAD[number])
    assert reply.status == 400, reply
    assert reply.headers["content-type"] == "application/json"
    assert 10 < len(reply.error) < 600
    assert reply.error.isprintable()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38, 2.0])
def test_floats_that_are_not_finite_or_out_of_range_are_refused(floats: Server, value: float) -> None:
    server = floats
    values = np.full((1, 4, 4, 1), 0.5, np.float32)
    path = "/v2/models/pixels/infer"
    assert server.post(path, values.tobytes(), {LENGTH: "0"}).status == 200
    values[0, 3, 3, 0] = value
    reply = server.post(path, values.tobytes(), {LENGTH: "0"})
    assert reply.status == 400
    assert "sample" in reply.error
    tensor = {"name": "image", "shape": [1, 4, 4, 1], "datatype": "FP32", "data": [0.5] * 15}
    for text in ("1e39", "-1e39", "1e400", "NaN", "Infinity"):
        body = json.dumps({"inputs": [tensor]}).replace("0.5]", f"0.5, {text}]").encode()
        assert server.post(path, body).status == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/models/nobody", 404), ("GET", "/v2/models/nobody/config", 404),
        ("POST", "/v2/models/nobody/infer", 404),
        ("GET", "/v2/models/tiny-onnx/versions/9/ready", 404), ("POST", "/v2/models/tiny-onnx/versions/9/infer", 404),
        ("GET", "/v2/models/tiny-onnx/versions", 404), ("GET", "/v2/models/", 404), ("GET", "/v2/models", 404),
        ("GET", "/v2/models/tiny-onnx/extra/words/here", 404), ("GET", "/v3", 404), ("GET", "/v2/health", 404),
        ("GET", "/v2/health/other", 404), ("GET", "/etc/passwd", 404), ("GET", "//", 404), ("GET", "/../..", 404),
        ("POST", "/infer", 404), ("POST", "/v2/infer", 404), ("POST", "/v2/models/infer", 404),
        ("GET", "/metrics", 404),
        ("POST", "/v2/repository/index", 404), ("GET", "/v2/models/tiny-onnx/infer", 405), ("GET", "/predict", 405),
        ("DELETE", "/v2/models/tiny-onnx/infer", 405), ("POST", "/v2", 405),
        ("POST", "/v2/models/tiny-onnx/ready", 405),
        ("PUT", "/v2/health/ready", 405), ("POST", "/", 405), ("TRACE", "/v2", 405), ("DELETE", "/predict", 405),
    ],
)  # fmt: skip
def test_unknown_paths_and_wrong_methods_have_their_codes(server: Server, method: str, path: str, status: int) -> None:
    reply = server.ask(method, path, b"{}" if method in ("POST", "PUT") else None)
    assert reply.status == status, reply
    assert reply.error
    if status == 405:
        assert reply.headers["allow"]


def test_versions_have_paths_of_their_own(server: Server, golden: dict[str, Any]) -> None:
    images, expected, _ = golden["tiny-onnx"]
    for path in (f"{ONNX}/versions/1.2.0", "/v2/models/tiny-onnx"):
        assert binary(raw(server, images[0], path))[1]["output"] == expected[0].tobytes()
        assert server.get(path).json()["name"] == "tiny-onnx"
        assert server.get(f"{path}/ready").status == 200
        assert server.get(f"{path}/config").json()["max_batch_size"] > 1
        assert server.get(f"{path}/stats").json()["model_stats"][0]["version"] == "1.2.0"


def test_head_is_get_without_a_body(server: Server) -> None:
    for path in ("/", "/v2", "/v2/health/ready"):
        reply = server.ask("HEAD", path)
        assert (reply.status, reply.body) == (200, b"")
        assert int(reply.headers["content-length"]) == len(server.get(path).body)


def stats(server: Server, name: str) -> dict[str, Any]:
    [found] = server.get(f"/v2/models/{name}/stats").json()["model_stats"]
    return dict(found)


@pytest.mark.parametrize("name", KEYS.values())
def test_statistics_count_exactly_whichever_worker_is_asked(server: Server, golden: dict[str, Any], name: str) -> None:
    images = golden[name][0]
    before = stats(server, name)
    for number in range(20):
        assert raw(server, images[number % 16], f"/v2/models/{name}").status == 200
    for _ in range(3):
        assert server.post(f"/v2/models/{name}/infer", request([7] * 320, shape=[5, 8, 8, 1])).status == 200
    for _ in range(4):
        assert server.post(f"/v2/models/{name}/infer", b"{}").status == 400
    after = [stats(server, name) for _ in range(20)]
    assert all(each == after[0] for each in after)

    def more(*keys: str) -> int:
        first, last = before, after[0]
        for key in keys:
            first, last = first[key], last[key]
        return int(last) - int(first)  # type: ignore[call-overload]

    assert more("inference_count") == 20 + 3 * 5
    assert more("inference_stats", "success", "count") == 23
    assert more("inference_stats", "fail", "count") == 4
    assert more("inference_stats", "compute_infer", "count") == 23
    assert more("inference_stats", "queue", "count") == 23
    assert more("inference_stats", "success", "ns") > more("inference_stats", "compute_infer", "ns") > 0
    batches = {each["batch_size"]: each["compute_infer"]["count"] for each in after[0]["batch_stats"]}
    old = {each["batch_size"]: each["compute_infer"]["count"] for each in before["batch_stats"]}
    ran = {size: count - old.get(size, 0) for size, count in batches.items()}
    assert sum(size * count for size, count in ran.items()) == 35
    assert sum(ran.values()) == more("execution_count")
    assert after[0]["last_inference"] > 1_600_000_000_000
    all_models = server.get("/v2/models/stats").json()["model_stats"]
    assert after[0] in all_models
    assert {each["name"] for each in all_models} == set(KEYS.values())


def test_metrics_say_the_same_as_statistics(server: Server) -> None:
    text = server.ask("GET", "/metrics", url=server.admin).body.decode()
    for name in KEYS.values():
        counted = stats(server, name)
        line = f'nv_inference_count{{model="{name}",version="1.2.0"}} '
        [value] = [float(each[len(line) :]) for each in text.splitlines() if each.startswith(line)]
        assert value == counted["inference_count"]


def test_a_deadline_that_cannot_be_met_is_refused_with_503(server: Server) -> None:
    image = bytes(64)
    reply = server.post(f"{ONNX}/infer", image, {LENGTH: "0", "X-Request-Timeout-Ms": "0.0001"})
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1
    assert server.post(f"{ONNX}/infer", image, {LENGTH: "0", "X-Request-Timeout-Ms": "10000"}).status == 200
    for value in ("0", "-1", "nan", "inf", "soon", "1e99", ""):
        assert server.post(f"{ONNX}/infer", image, {LENGTH: "0", "X-Request-Timeout-Ms": value}).status == 400
    assert server.post(f"{ONNX}/infer", {**request(), "parameters": {"timeout": 10**7}}).status == 200
    assert server.post(f"{ONNX}/infer", {**request(), "parameters": {"timeout": 1}}).status in (200, 503)
