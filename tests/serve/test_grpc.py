"""The Open Inference Protocol over gRPC, called by plain grpcio: real processes, real sockets."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format

from edgekit.device import pyz
from edgekit.runner import bundle, load
from edgekit.serve.protocol_buffers import descriptors, generate, message
from tests import requirements
from tests.conftest import ROOT
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, onnx_model, openvino_model
from tests.runner.conftest import reference as true_scores
from tests.runner.conftest import samples as images
from tests.serve.grpc_server import RUNNER, Client, Server, outputs, parameters, request

pytestmark = pytest.mark.processes

Start = Callable[..., Server]
Code = grpc.StatusCode
X = images(3)
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bundles of one network for two targets."""
    made, files = tmp_path_factory.mktemp("bundles"), tmp_path_factory.mktemp("files")
    for target, model in (("onnx", {"model.onnx": onnx_model()}), ("openvino", openvino_model(files))):
        tiny = ModelFiles(target, model, NCHW, SCORES, 1e-4)
        members = members_for(tiny, images(), true_scores(images()))
        bundle.write(made / f"tiny-{target}-1.2.0.edge.zip", manifest_for(tiny), members)
    return made


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """`start(*arguments)` gives a server; it is stopped, and has written no traceback, at the end."""
    running: list[Server] = []

    def begin(*arguments: object, **keywords: Any) -> Server:
        home = keywords.pop("home", None) or tmp_path_factory.mktemp("server")
        running.append(Server.start(home, *arguments, **keywords))
        return running[-1]

    yield begin
    for server in running:
        server.stop()
        assert "Traceback" not in server.log_text(), server.log_text()
        assert "internal error" not in server.log_text(), server.log_text()


@pytest.fixture(scope="module")
def server(start: Start, folder: Path) -> Server:
    """Two workers."""
    return start("--workers", 2, "--drain-s", 0, folder)


@pytest.fixture(scope="module")
def client(server: Server) -> Client:
    return Client(server.grpc)


@pytest.fixture
def slow(start: Start, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Server:
    """A server whose recorded latency is half a second per call, and which waits a second for a batch to fill."""
    path = folder / "tiny-openvino-1.2.0.edge.zip"
    home = tmp_path_factory.mktemp("slow")  # not tmp_path, which is removed before `start` reads the server's log
    start("--drain-s", 0, path, home=home).stop()
    [record] = (home / "edgerun").glob("curve-*.json")
    curve = json.loads(record.read_text())
    record.write_text(json.dumps({**curve, "ms": {"1": 500.0, "16": 510.0}}))
    return start("--drain-s", 0, "--queue-delay-ms", 1000, path, home=home)


def refused(call: Callable[[], Any]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


def statistics(client: Client, model: str) -> Any:
    return client.call("ModelStatistics", name=model).model_stats[0]


def typed(samples: np.ndarray) -> Any:
    tensor = {"name": "image", "datatype": "UINT8", "shape": samples.shape}
    return request(
        "tiny-onnx",
        samples,
        inputs=[{**tensor, "contents": {"uint_contents": samples.ravel().tolist()}}],
        raw_input_contents=[],
    )


@pytest.mark.parametrize("target", ["onnx", "openvino"])
@pytest.mark.parametrize("count", [1, 3])
def test_answers_are_to_the_bit_those_of_http_and_of_the_runner(
    target: str, count: int, server: Server, client: Client, folder: Path
) -> None:
    x = X[:count]
    answer = outputs(client.infer(request(f"tiny-{target}", x)))
    body = {"inputs": [{"name": "image", "datatype": "UINT8", "shape": x.shape, "data": x.ravel().tolist()}]}
    theirs = {each["name"]: each["data"] for each in server.json(f"/v2/models/tiny-{target}/infer", body)["outputs"]}
    assert answer["output"].tobytes() == np.array(theirs["output"], "<f4").tobytes()
    assert answer["answer"] == theirs["answer"]
    if count == 1:  # an instance for several samples may round otherwise, within what the golden samples allow
        model = load(folder / f"tiny-{target}-1.2.0.edge.zip", trial=False)
        assert answer["output"][0].tobytes() == model.execute(model.prepare(x[0])).tobytes()


def test_typed_contents_are_raw_contents(client: Client) -> None:
    assert client.infer(typed(X)).raw_output_contents == client.infer(request("tiny-onnx", X)).raw_output_contents


def test_an_answer_carries_the_id_the_model_and_its_version(client: Client) -> None:
    answer = client.infer(request("tiny-onnx", X, id="a-1", model_version="1.2.0"))
    assert (answer.id, answer.model_name, answer.model_version) == ("a-1", "tiny-onnx", "1.2.0")
    assert [(each.name, each.datatype, list(each.shape)) for each in answer.outputs] == [
        ("output", "FP32", [3, 3]),
        ("answer", "BYTES", [3, 1]),
    ]


def test_outputs_are_those_asked_for_and_may_be_classes(client: Client) -> None:
    requested = [{"name": "output", "parameters": parameters(classification=2)}]
    answer = outputs(client.infer(request("tiny-onnx", X[:1], outputs=requested)))
    [scores] = outputs(client.infer(request("tiny-onnx", X[:1], outputs=[{"name": "output"}])))["output"]
    assert list(answer) == ["output"]
    best = np.argsort(-scores)[:2]
    assert [text.split(":")[1] for text in answer["output"]] == [str(each) for each in best]
    assert [float(text.split(":")[0]) for text in answer["output"]] == pytest.approx(scores[best], abs=1e-6)


TENSOR = {"name": "image", "datatype": "UINT8", "shape": X.shape}
FLOATS = {"contents": {"fp32_contents": X.ravel().tolist()}}
WRONG: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "an unknown model": ({"model_name": "other"}, Code.NOT_FOUND, "model: got other; served are tiny"),
    "an unknown version": ({"model_version": "9"}, Code.NOT_FOUND, "model: got tiny-onnx/versions/9"),
    "no input": ({"inputs": [], "raw_input_contents": []}, Code.INVALID_ARGUMENT, "inputs: got 0"),
    "two inputs": ({"inputs": [TENSOR] * 2, "raw_input_contents": [b""] * 2}, Code.INVALID_ARGUMENT, "got 2"),
    "many inputs": ({"inputs": [TENSOR] * 99, "raw_input_contents": []}, Code.INVALID_ARGUMENT, "inputs: got 99"),
    "another name": ({"inputs": [{**TENSOR, "name": "x"}]}, Code.INVALID_ARGUMENT, "inputs[0].name: got 'x'"),
    "another type": ({"inputs": [{**TENSOR, "datatype": "FP32"}]}, Code.INVALID_ARGUMENT, "takes 768"),
    "no type": ({"inputs": [{**TENSOR, "datatype": "?"}]}, Code.INVALID_ARGUMENT, "inputs[0].datatype: got '?'"),
    "another shape": ({"inputs": [{**TENSOR, "shape": [3, 64]}]}, Code.INVALID_ARGUMENT, "use [n, 8, 8, 1]"),
    "a negative side": ({"inputs": [{**TENSOR, "shape": [-3, 8, 8, 1]}]}, Code.INVALID_ARGUMENT, "got -3 samples"),
    "too few bytes": ({"raw_input_contents": [b"123"]}, Code.INVALID_ARGUMENT, "raw_input_contents[0]: got 3 bytes"),
    "too many buffers": ({"raw_input_contents": [b"1", b"2"]}, Code.INVALID_ARGUMENT, "got 2 for one input"),
    "raw and typed": ({"inputs": [{**TENSOR, **FLOATS}]}, Code.INVALID_ARGUMENT, "give one of them"),
    "wrong contents": (
        {"inputs": [{**TENSOR, **FLOATS}], "raw_input_contents": []},
        Code.INVALID_ARGUMENT,
        "got fp32_contents; send UINT8 in uint_contents",
    ),
    "no contents": ({"raw_input_contents": []}, Code.INVALID_ARGUMENT, "inputs[0].contents: got nothing"),
    "another output": ({"outputs": [{"name": "y"}]}, Code.INVALID_ARGUMENT, "the model gives output, answer"),
    "no timeout": ({"parameters": parameters(timeout="soon")}, Code.INVALID_ARGUMENT, "parameters.timeout: got 'soon'"),
    "a long id": ({"id": "i" * 300}, Code.INVALID_ARGUMENT, "at most 256 characters"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_gets_its_code_and_a_sentence(case: str, client: Client) -> None:
    fields, code, sentence = WRONG[case]
    error = refused(lambda: client.infer(request("tiny-onnx", X, **fields)))
    assert error.code() == code, error.details()
    assert sentence in error.details()


def test_typed_values_out_of_range_are_refused(client: Client) -> None:
    infer_request = typed(X)
    infer_request.inputs[0].contents.uint_contents[5] = 256
    error = refused(lambda: client.infer(infer_request))
    assert (error.code(), error.details()) == (
        Code.INVALID_ARGUMENT,
        "inputs[0].data: use whole numbers from 0 to 255",
    )


def test_bytes_that_are_no_message_are_refused(client: Client) -> None:
    error = refused(lambda: client.infer(b"\xff\xff\xff"))
    assert (error.code(), error.details()) == (
        Code.INVALID_ARGUMENT,
        "message: 3 bytes that cannot be parsed as inference.ModelInferRequest",
    )


def test_what_is_not_served_is_unimplemented(client: Client) -> None:
    call = client.channel.unary_unary("/inference.GRPCInferenceService/SystemSharedMemoryStatus")
    assert refused(lambda: call(b"")).code() == Code.UNIMPLEMENTED


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_above_the_limit_is_refused_before_and_after_it_is_unpacked(
    compression: grpc.Compression, start: Start, folder: Path
) -> None:
    server = start("--drain-s", 0, "--max-body-mb", 1, folder / "tiny-onnx-1.2.0.edge.zip")
    client = Client(server.grpc)
    infer_request = request("tiny", X, raw_input_contents=[bytes(4 << 20)])
    assert refused(lambda: client.infer(infer_request, compression=compression)).code() == Code.RESOURCE_EXHAUSTED
    assert len(client.infer(request("tiny", X)).outputs) == 2


def test_what_a_client_sends_below_the_protocol_reaches_no_log(server: Server, client: Client) -> None:
    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    before = server.log_text()
    host, port = server.grpc.split(":")
    status = frame(1, 4, 1, b"\x08\x04ZXCV")  # a header `:status` that is no number
    goaway = frame(7, 0, 0, bytes(4) + b"\x11\x11\x11\x11" + b"ZXCV\x1b[31m\n")
    for sent in (status, goaway):
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + sent)
            assert connection.recv(1 << 16)
            time.sleep(0.2)
    assert len(client.infer(request("tiny-onnx", X)).outputs) == 2
    assert server.log_text() == before


def test_metadata_and_config_say_what_http_says(server: Server, client: Client) -> None:
    def facts(response: Any) -> Any:
        return json_format.MessageToDict(response, preserving_proto_field_name=True)

    def as_message(kind: str, values: object) -> Any:
        return facts(json_format.ParseDict(values, message(kind)()))  # type: ignore[arg-type]

    assert facts(client.call("ServerMetadata")) == server.json("/v2")
    for name in ("tiny-onnx", "tiny-openvino"):
        known = server.json(f"/v2/models/{name}")
        assert facts(client.call("ModelMetadata", name=name)) == as_message("ModelMetadataResponse", known)
        known = {"config": server.json(f"/v2/models/{name}/config")}
        assert facts(client.call("ModelConfig", name=name)) == as_message("ModelConfigResponse", known)
        assert client.call("ModelReady", name=name, version="1.2.0").ready
    assert client.call("ServerLive").live
    assert client.call("ServerReady").ready
    assert not client.call("ModelReady", name="other").ready
    assert not client.call("ModelReady", name="tiny-onnx", version="9").ready


def test_the_index_lists_what_is_served_and_changes_are_sent_to_the_admin_port(client: Client) -> None:
    models = client.call("RepositoryIndex").models
    assert ("tiny-onnx", "1.2.0", "READY") in [(each.name, each.version, each.state) for each in models]
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        error = refused(lambda method=method: client.call(method, model_name="tiny-onnx"))
        assert error.code() == Code.PERMISSION_DENIED
        assert "admin port" in error.details()


def test_statistics_count_calls_of_both_kinds_in_all_workers(server: Server, client: Client) -> None:
    before = statistics(client, "tiny-onnx")
    for _ in range(6):
        Client(server.grpc).infer(request("tiny-onnx", X))
    refused(lambda: client.infer(request("tiny-onnx", X, raw_input_contents=[b"1"])))
    after = statistics(client, "tiny-onnx")
    assert after.inference_count - before.inference_count == 18
    assert after.inference_stats.success.count - before.inference_stats.success.count == 6
    assert after.inference_stats.fail.count - before.inference_stats.fail.count == 1
    known = server.json("/v2/models/tiny-onnx/stats")["model_stats"][0]
    assert known["inference_stats"]["success"]["count"] == after.inference_stats.success.count
    assert {each.name for each in client.call("ModelStatistics").model_stats} >= {"tiny-onnx", "tiny-openvino"}


def test_a_deadline_that_cannot_be_met_is_refused_at_once(slow: Server) -> None:
    client = Client(slow.grpc)
    for infer_request, timeout in (
        (request("tiny", X), 0.4),  # gRPC's own
        (request("tiny", X, parameters=parameters(timeout=400_000)), None),  # Triton's parameter, in µs
    ):
        error = refused(
            lambda infer_request=infer_request, timeout=timeout: client.infer(infer_request, timeout=timeout)
        )
        assert (error.code(), error.details()) == (Code.UNAVAILABLE, "it would be answered after its deadline")
        assert dict(error.trailing_metadata())["retry-after"] == "1"
    assert statistics(client, "tiny").execution_count == 0
    assert len(client.infer(request("tiny", X), timeout=30).outputs) == 2


def test_a_call_that_is_cancelled_never_runs(slow: Server) -> None:
    client = Client(slow.grpc)

    def cancelled() -> bool:
        with urllib.request.urlopen(slow.admin + "/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        return any("cancelled" in line and line.endswith((" 1", " 1.0")) for line in lines)

    assert not cancelled()
    call = client.method("ModelInfer").future(request("tiny", X))
    until(lambda: slow.json("/status")["models"][0]["pending"] == 3)
    call.cancel()
    until(cancelled)
    assert client.infer(request("tiny", X[:1])).model_name == "tiny"  # behind which the cancelled one would have run
    assert statistics(client, "tiny").inference_count == 1


def until(true: Callable[[], bool]) -> None:
    """AssertionError where it does not come true."""
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_tokens_are_asked_for_by_all_calls_but_health(start: Start, folder: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    tokens.chmod(0o600)
    client = Client(start("--drain-s", 0, "--token-file", tokens, folder / "tiny-onnx-1.2.0.edge.zip").grpc)
    assert client.call("ServerReady").ready
    infer_request = request("tiny", X)
    for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", TOKEN),)):
        error = refused(lambda metadata=metadata: client.infer(infer_request, metadata=metadata))
        assert error.code() == Code.UNAUTHENTICATED
        assert TOKEN not in error.details()
    assert refused(lambda: client.call("ModelMetadata", name="tiny")).code() == Code.UNAUTHENTICATED
    assert len(client.infer(infer_request, metadata=(("authorization", f"Bearer {TOKEN}"),)).outputs) == 2


def test_tls_takes_the_certificate_and_key_of_http(start: Start, folder: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [requirements.program("openssl"), "req", "-x509",
         "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    server = start("--drain-s", 0, "--certificate", certificate, "--key", key, folder / "tiny-onnx-1.2.0.edge.zip")
    trusted = grpc.ssl_channel_credentials(certificate.read_bytes())
    assert Client(server.grpc, trusted).call("ServerReady").ready
    assert refused(lambda: Client(server.grpc).call("ServerReady", timeout=5)).code() == Code.UNAVAILABLE


def listeners(port: int) -> int:
    """Sockets that listen on a port; gRPC listens to IPv4 through one of IPv6 where the machine has that."""
    rows = [line.split() for kind in ("tcp", "tcp6") for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "0A" for row in rows)


def test_every_worker_listens_and_a_killed_one_is_replaced(start: Start, folder: Path) -> None:
    server = start("--drain-s", 0, "--workers", 2, folder / "tiny-onnx-1.2.0.edge.zip")
    port = int(server.grpc.rpartition(":")[2])
    assert listeners(port) == 2
    killed = server.workers[0]
    os.kill(killed, signal.SIGKILL)
    until(lambda: killed not in server.workers)
    for _ in range(4):
        assert len(Client(server.grpc).infer(request("tiny", X)).outputs) == 2
    until(lambda: len(server.workers) == 2 and listeners(port) == 2)


def test_sigterm_loses_no_call(start: Start, folder: Path) -> None:
    server = start("--workers", 2, "--drain-s", 1.5, folder)
    failed: list[str] = []
    answered = [0] * 4
    was_answered = [False] * 4

    def ask(number: int) -> None:
        client = Client(server.grpc)
        try:
            while client.call("ServerReady").ready:
                client.infer(request("tiny-openvino", X))
                answered[number] += 1
            was_answered[number] = True
            client.infer(request("tiny-openvino", X))  # not ready means: go elsewhere; what still comes is answered
        except grpc.RpcError as error:
            failed.append(f"{error.code()}: {error.details()}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: min(answered) > 5)
    server.process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert all(was_answered)
    assert server.process.wait(60) == 0


def test_what_runs_at_the_end_of_draining_is_finished(slow: Server) -> None:
    """Of the second that a batch may fill, draining here waits for nothing; the call was there before its end."""
    call = Client(slow.grpc).method("ModelInfer").future(request("tiny", X))
    until(lambda: slow.json("/status")["models"][0]["pending"] == 3)
    slow.process.terminate()
    assert len(call.result(30).outputs) == 2
    assert slow.process.wait(60) == 0


def test_a_port_in_use_is_reported(folder: Path, server: Server) -> None:
    for taken in (server.grpc.rpartition(":")[2], "plain"):
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = str(other.getsockname()[1]) if taken == "plain" else taken
            done = subprocess.run(
                [*RUNNER, "serve", "--port", "0", "--admin-port", "none", "--grpc-port", port, str(folder)],
                cwd=ROOT, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
        assert done.returncode == 4, done.stderr
        assert f"127.0.0.1:{port}: cannot listen there" in done.stderr
        assert "choose another --grpc-port, or none" in done.stderr


@pytest.mark.parametrize(("module", "package"), [("grpc", "grpcio"), ("google", "protobuf")])
def test_a_package_that_is_missing_is_named_with_the_line_that_installs_it(
    module: str, package: str, folder: Path
) -> None:
    code = (
        f"import sys; sys.modules['{module}'] = None\n"
        f"from edgekit.runner.cli import main\nsys.exit(main(['serve', '--grpc-port', '0', {str(folder)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert f"-m pip install {package}" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_option_no_packages_of_grpc_are_needed_or_loaded(folder: Path) -> None:
    code = (
        "import sys; sys.modules['grpc'] = None; sys.modules['google'] = None\n"
        "import edgekit.serve.__main__, edgekit.serve.worker"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60).returncode == 0


def test_the_runner_in_one_file_speaks_grpc(start: Start, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "edgerun.pyz"
    pyz.build(path)
    server = start("--drain-s", 0, folder / "tiny-onnx-1.2.0.edge.zip", runner=(sys.executable, "-I", str(path)))
    assert len(Client(server.grpc).infer(request("tiny", X)).outputs) == 2


def test_the_descriptors_are_made_from_the_file_beside_them() -> None:
    assert hashlib.sha256(generate.SOURCE.read_bytes()).hexdigest() == descriptors.SOURCE_SHA256


def test_messages_of_the_same_names_fit_into_one_process() -> None:
    code = (
        "import base64, zlib\n"
        "from google.protobuf import descriptor_pool\n"
        "from edgekit.serve import protocol_buffers\n"
        "text = zlib.decompress(base64.b85decode(protocol_buffers.DESCRIPTORS))\n"
        "descriptor_pool.Default().AddSerializedFile(text.replace(b'inference.proto', b'elsewhere.proto'))\n"
        "descriptor_pool.Default().FindMessageTypeByName('inference.ModelInferRequest')\n"
        "protocol_buffers.message('ModelInferRequest')(id='1')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
