"""`edgerun eim` as a process: several clients, clients that misbehave, and how it ends."""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.eim import parameters, results, server
from edgekit.device.eim.shared_memory import FOLDER, PREFIX, SharedFeatures
from edgekit.runner import load
from tests.device.eim.running import Client, blocks, ended, features, running
from tests.runner import flat
from tests.serve.export import detectors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shared memory of Linux")


def write_shared(block: dict[str, Any], values: list[float]) -> None:
    """Write a sample as a client does, through the name of the block."""
    with open(f"{FOLDER}{block['name']}", "r+b") as stream, mmap.mmap(stream.fileno(), block["size_bytes"]) as memory:
        memory[: 4 * len(values)] = np.array(values, np.float32).tobytes()


def expected(bundle: Path, sample: np.ndarray) -> dict[str, Any]:
    """The result for the bundle's own answer to a sample."""
    model = load(bundle, trial=False)
    limit = parameters.threshold(model.manifest)
    answer = model.predict(sample, top_k=max(1, len(model.manifest.labels)))
    return results.to_result(answer, model.manifest, limit.value if limit else 0.0)


@pytest.mark.parametrize("kind", ["image", "vector", "audio", "window", "boxes"])
def test_a_client_gets_the_answers_of_the_bundle(kind: str, kinds: dict[str, Path], tmp_path: Path) -> None:
    model = load(kinds[kind], trial=False)
    raw = model.manifest.raw
    samples = detectors.pictures(4) if kind == "boxes" else flat.examples(raw, 4)
    if kind == "audio":
        samples = np.rint(samples * 32767).astype(np.float32) / np.float32(32768)
    with running(kinds[kind], tmp_path / "s") as process, Client(tmp_path / "s") as client:
        hello = client.ask(hello=1)
        assert hello.pop("features_shm")["elements"] == hello["model_parameters"]["input_features_count"]
        assert hello == {"success": True, **parameters.describe(model.manifest)}
        for sample in samples:
            answer = client.ask(classify=features(sample, raw))
            assert answer["success"] and answer["result"] == expected(kinds[kind], sample)
        client.socket.close()
        assert ended(process) == (0, "")


def test_clients_have_shared_memory_of_their_own(kinds: dict[str, Path], tmp_path: Path) -> None:
    path, raw = kinds["boxes"], load(kinds["boxes"], trial=False).manifest.raw
    one, two = detectors.pictures(2)
    with running(path, tmp_path / "s") as process:
        with Client(tmp_path / "s") as first, Client(tmp_path / "s") as second:
            places = [each.ask(hello=1)["features_shm"] for each in (first, second)]
            assert len(blocks(process)) == 2
            for place, sample in zip(places, (one, two), strict=True):
                write_shared(place, features(sample, raw))
            for client, sample in ((second, two), (first, one)):
                answer = client.ask(classify_shm={"elements": 64 * 64})
                assert answer["result"] == expected(path, sample)
        assert ended(process) == (0, "")
        assert not blocks(process) and not (tmp_path / "s").exists()


def test_it_stays_for_other_clients_with_that_option(kinds: dict[str, Path], tmp_path: Path) -> None:
    with running(kinds["vector"], tmp_path / "s", "--stay") as process:
        for _ in range(3):
            with Client(tmp_path / "s") as client:
                assert client.ask(hello=1)["success"]
        assert process.poll() is None


def test_messages_that_fail_are_answered_and_the_next_is_not_affected(kinds: dict[str, Path], tmp_path: Path) -> None:
    with running(kinds["vector"], tmp_path / "s"), Client(tmp_path / "s") as client:
        assert "there is no shared memory; send hello first" in client.ask(classify_shm={"elements": 5})["error"]
        assert client.ask(hello=1)["success"]
        for message, reason in [
            ({"hello": 2}, "hello: got 2; this is version 1"),
            ({"classify": [1.0]}, "classify: got 1 features; the bundle takes 5"),
            ({"classify": {"0": 1}}, "classify: is not a list"),
            ({"classify": [2.0] * 5}, "classify: .*from 2 to 2"),
            ({"classify_shm": {"elements": 4}}, "classify_shm: got 4 elements; the bundle takes 5"),
            ({"classify_shm": 5}, "classify_shm: got None elements"),
            ({"classify_continuous": [1.0]}, "asks for classify_continuous; send one of hello, classify,"),
            ({}, "asks for nothing"),
            ({"set_threshold": {"id": 1, "min_score": 0.5}}, "classification has no threshold"),
        ]:
            answer = client.ask(**message)
            assert answer["success"] is False, message
            assert re.search(reason, answer["error"]), answer
        client.socket.sendall(b'{"classify": [1, }')
        assert client.read()["error"].startswith("the message is not JSON")
        client.socket.sendall(b'{"classify": [NaN, 0, 0, 0, 0], "id": 70}')
        assert client.read() == {
            "id": 70,
            "success": False,
            "error": "classify: the features hold NaN or infinity; check the sensor",
        }
        client.socket.sendall(b'{"hello": 1, "id": "x"}')
        assert client.read() == {"success": False, "error": "id: is missing, or not a whole number"}
        assert client.ask(classify=[0.5] * 5)["success"]


@pytest.mark.parametrize("wrong", [b"GET / HTTP/1.1\r\n", b'{"classify": [' + b"1, " * 100_000])
def test_what_is_no_message_ends_only_its_own_connection(wrong: bytes, kinds: dict[str, Path], tmp_path: Path) -> None:
    with running(kinds["vector"], tmp_path / "s"), Client(tmp_path / "s") as other:
        with Client(tmp_path / "s") as client:
            client.socket.sendall(wrong)
            assert client.read()["success"] is False
            client.socket.shutdown(socket.SHUT_WR)
            assert client.has_ended()
        assert other.ask(classify=[0.5] * 5)["success"]


def test_clients_that_vanish_leave_nothing_and_disturb_nobody(kinds: dict[str, Path], tmp_path: Path) -> None:
    values = features(detectors.pictures(1)[0], load(kinds["boxes"], trial=False).manifest.raw)
    request = json.dumps({"classify": values, "id": 1}).encode()
    with running(kinds["boxes"], tmp_path / "s") as process, Client(tmp_path / "s") as other:
        assert other.ask(hello=1)["success"]
        for data in (b"", b'{"hello": 1, "id"', request[:10_000], request, request * 30):
            with Client(tmp_path / "s") as client:
                assert client.ask(hello=1)["success"]
                client.socket.setblocking(False)
                with suppress(BlockingIOError):
                    client.socket.send(data)
        assert other.ask(classify=values)["success"]
        while len(blocks(process)) > 1:  # those that vanished are noticed when their answer is sent
            assert other.ask(classify=values)["success"]


def test_a_client_that_reads_nothing_does_not_delay_others(kinds: dict[str, Path], tmp_path: Path) -> None:
    values = features(detectors.pictures(1)[0], load(kinds["boxes"], trial=False).manifest.raw)
    request = json.dumps({"classify": values, "id": 1}).encode()
    with running(kinds["boxes"], tmp_path / "s"), Client(tmp_path / "s") as deaf, Client(tmp_path / "s") as other:
        deaf.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                deaf.socket.sendall(request)
        assert other.ask(classify=values)["success"]


def test_a_threshold_holds_for_the_client_that_sets_it(kinds: dict[str, Path], tmp_path: Path) -> None:
    sample = detectors.pictures(1)[0]
    values = features(sample, load(kinds["boxes"], trial=False).manifest.raw)
    with running(kinds["boxes"], tmp_path / "s"), Client(tmp_path / "s") as client, Client(tmp_path / "s") as other:
        boxes = expected(kinds["boxes"], sample)["bounding_boxes"]
        least = boxes[len(boxes) // 2]["value"]
        assert client.ask(set_threshold={"id": 1, "min_score": least}) == {"success": True}
        few = client.ask(classify=values)["result"]["bounding_boxes"]
        assert few == [each for each in boxes if each["value"] >= least] and 0 < len(few) < len(boxes)
        assert other.ask(classify=values)["result"]["bounding_boxes"] == boxes
        for wrong in ({"id": 1, "min_score": 0.1}, {"id": 2, "min_score": 0.9}, {"id": 1, "min_score": "high"}, 1):
            assert client.ask(set_threshold=wrong)["success"] is False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_without_an_error(number: signal.Signals, kinds: dict[str, Path], tmp_path: Path) -> None:
    with running(kinds["vector"], tmp_path / "s") as process, Client(tmp_path / "s") as client:
        assert client.ask(hello=1)["success"] and blocks(process)
        process.send_signal(number)
        assert ended(process) == (0, "")
        assert not blocks(process) and not (tmp_path / "s").exists()


def test_what_a_killed_process_left_is_removed_by_the_next(kinds: dict[str, Path], tmp_path: Path) -> None:
    with running(kinds["vector"], tmp_path / "s") as killed, Client(tmp_path / "s") as client:
        client.ask(hello=1)
        killed.kill()
        killed.wait()
    living = SharedFeatures(4)
    assert blocks(killed) and (tmp_path / "s").is_socket()
    with running(kinds["vector"], tmp_path / "s"), Client(tmp_path / "s") as client:
        assert client.ask(hello=1)["success"]
        assert not blocks(killed)
        assert any(name.startswith(f"{PREFIX}{os.getpid()}-") for name in os.listdir(FOLDER))
    living.close()


def refusal(code: int, bundle: Path, path: Path) -> str:
    """What `edgerun eim` says if it ends at once."""
    with running(bundle, path) as process:
        found, error = ended(process)
    assert found == code and error.startswith("edgerun: ") and error.count("\n") == 1
    return error


def test_a_path_that_is_taken_is_refused_and_left_alone(kinds: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "exists and is not a socket" in refusal(4, kinds["vector"], tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    with running(kinds["vector"], tmp_path / "s"):
        assert "another process listens there" in refusal(4, kinds["vector"], tmp_path / "s")
        assert (tmp_path / "s").is_socket()
    assert "the socket cannot be created: No such file" in refusal(7, kinds["vector"], tmp_path / "absent" / "s")
    long = tmp_path / ("x" * server.LONGEST_PATH)
    assert "but a socket takes 100; shorten it" in refusal(4, kinds["vector"], long)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("absent", "{path}: cannot be read: No such file"),
        ("damaged", "manifest.json: cannot be read back"),
        ("unsupported", "{path}: its samples are float32, but"),
    ],
)
def test_a_bundle_that_cannot_be_opened_is_the_answer_to_hello(
    fault: str, reason: str, kinds: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "b.edge.zip"
    if fault == "damaged":
        data = bytearray(kinds["vector"].read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif fault == "unsupported":
        path = flat.write(path, flat.PIXELS)
    with running(path, tmp_path / "s") as process, Client(tmp_path / "s") as client:
        answer = client.ask(hello=1)
        code, error = ended(process)
    assert answer["success"] is False and answer["error"].startswith(reason.format(path=path))
    assert code in (4, 8) and error == f"edgerun: {answer['error']}\n"


def test_without_shared_memory_clients_get_the_reason(kinds: dict[str, Path], tmp_path: Path) -> None:
    code = (
        "import sys; from edgekit.device.eim import shared_memory; shared_memory.FOLDER = '/proc/absent'; "
        "from edgekit.runner.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", code, "eim", str(kinds["vector"]), str(tmp_path / "s")]
    with subprocess.Popen(command) as process:
        while not (tmp_path / "s").is_socket():
            assert process.poll() is None
        with Client(tmp_path / "s") as client:
            hello = client.ask(hello=1)
            assert "features_shm" not in hello and "/proc/absent" in hello["features_shm_error"]
            assert client.ask(classify=[0.5] * 5)["success"]
        assert process.wait(30) == 0


def test_a_command_without_a_socket_is_misspelt(kinds: dict[str, Path]) -> None:
    command = [sys.executable, "-m", "edgekit.runner", "eim", str(kinds["vector"])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "name the SOCKET to create" in done.stderr
    done = subprocess.run([*command, "--print-info"], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout) == parameters.describe(load(kinds["vector"], trial=False).manifest)
