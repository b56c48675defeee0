"""Starts, stops, deaths and new versions while clients send without pause: no request is lost but those of the dead."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.runner.conftest import NCHW, SCORES, ModelFiles, manifest_for, members_for, onnx_model, reference, samples
from tests.serve.conftest import Start, changed
from tests.serve.server import INFER, RAW, Server, send_request

pytestmark = pytest.mark.processes

CLIENTS = 8


@dataclass
class Load:
    """What clients that send without pause have seen."""

    url: str
    path: str = INFER
    answers: list[tuple[float, str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    refused: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def client(self) -> None:
        """One keep-alive connection after the other; a server that is gone is the end."""
        while not self.stop.is_set():
            connection = http.client.HTTPConnection(self.url, timeout=30)
            try:
                connection.connect()
            except ConnectionRefusedError:
                self.refused += 1
                return
            except OSError as error:
                self.lost.append(f"connect: {error!r}")
                return
            try:
                self._send_on(connection)
            except (OSError, http.client.HTTPException) as error:
                self.lost.append(repr(error))
            finally:
                connection.close()

    def _send_on(self, connection: http.client.HTTPConnection) -> None:
        body = samples(1)[0].tobytes()
        while not self.stop.is_set():
            reply = send_request(connection, "POST", self.path, body, RAW)
            if reply.status != 200:
                self.lost.append(f"{reply.status} {reply.body!r}")
                return
            header = reply.body[: int(reply.headers["inference-header-content-length"])]
            self.answers.append((time.monotonic(), json.loads(header)["model_version"]))
            if reply.headers.get("connection") == "close":
                return


@contextmanager
def loaded(server: Server, clients: int = CLIENTS) -> Iterator[Load]:
    """Clients that send, from the first answer of each on."""
    load = Load(server.url)
    threads = [threading.Thread(target=load.client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(load.answers) > 10 * clients)
        yield load
    finally:
        load.stop.set()
        for thread in threads:
            thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads), "a client hangs"


def wait_for(condition: object, limit_s: float = 60.0) -> None:
    until = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_stopped_under_load_loses_no_request(
    start: Start, bundles: dict[str, Path], number: int
) -> None:
    server = start(bundles["onnx"], "--workers", 2, "--drain-s", 1.5)
    admin, workers = server.admin, server.workers
    with loaded(server) as load:
        server.signal(number)
        wait_for(lambda: server.get("/v2/health/ready").status == 503)
        assert server.get("/v2/health/live").status == 200
        assert server.get("/v2/models/tiny/ready").status == 503
        ready = server.ask("GET", "/v2/health/ready", url=admin).status
        seen = len(load.answers)
        wait_for(lambda: len(load.answers) > seen + 50)
        assert server.wait() == 0
        ended = time.monotonic()
        wait_for(lambda: load.refused == CLIENTS, 10)
    assert load.lost == []
    assert max(when for when, _ in load.answers) < ended
    assert ready == 503
    with pytest.raises(ConnectionRefusedError):
        server.connect()
    assert all(not Path(f"/proc/{worker}").exists() for worker in workers)


def test_a_worker_that_is_killed_is_started_again_and_others_serve_on(start: Start, bundles: dict[str, Path]) -> None:
    server = start(bundles["onnx"], "--workers", 2)
    before = server.workers
    assert len(before) == 2
    with loaded(server, 4) as load:
        os.kill(before[0], signal.SIGKILL)
        wait_for(lambda: len(server.workers) == 2 and before[0] not in server.workers)
        server.wait_for_log(r"worker \d ended \(SIGKILL\); a new one starts")
        seen = len(load.answers)
        wait_for(lambda: len(load.answers) > seen + 200)
    assert len(load.lost) <= 4  # no more than one on each connection of the dead
    totals = {json.dumps(server.get("/v2/models/tiny/stats").json()) for _ in range(20)}
    assert len(totals) == 1
    [stats] = json.loads(totals.pop())["model_stats"]
    assert len(load.answers) <= stats["inference_stats"]["success"]["count"] <= len(load.answers) + len(load.lost)
    for worker in server.workers:
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: answers(server))
    assert server.get("/status").json()["models"][0]["pending"] == 0
    assert server.process.poll() is None


def answers(server: Server) -> bool:
    try:
        return server.post(INFER, bytes(64), RAW).status == 200
    except OSError:
        return False


def test_clients_that_hang_up_do_not_stop_the_queue(start: Start, bundles: dict[str, Path]) -> None:
    server = start(bundles["openvino"])  # its batches pay, so requests wait for one another
    head = (
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\nContent-Length: 64\r\n\r\n".encode()
    )
    many = json.dumps(
        {"inputs": [{"name": "image", "shape": [200, 8, 8, 1], "datatype": "UINT8", "data": [1] * 12800}]}
    ).encode()
    with loaded(server, 4) as load:
        for number in range(150):
            connection = server.connect()
            if number % 3 == 0:
                connection.sendall(
                    f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(many)}\r\n\r\n".encode() + many
                )
            else:
                connection.sendall((head + bytes(64))[: None if number % 3 == 1 else -number % 50 - 1])
            if number % 2:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
            connection.close()
        seen = len(load.answers)
        wait_for(lambda: len(load.answers) > seen + 200)
    assert load.lost == []
    wait_for(lambda: server.get("/status").json()["models"][0]["pending"] == 0)


@pytest.fixture(scope="module")
def repository(start: Start, bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, Path]:
    folder = tmp_path_factory.mktemp("repository")
    shutil.copy(bundles["onnx"], folder / "tiny-1.edge.zip")
    return start(folder, "--workers", 2), folder


def test_a_new_version_is_loaded_under_load_without_a_lost_request(repository: tuple[Server, Path]) -> None:
    server, folder = repository
    with loaded(server) as load:
        changed(folder / "tiny-1.edge.zip", folder / "tiny-2.edge.zip", version="1.10.0")
        index = server.manage("index").json()
        assert {"name": "tiny", "version": "1.10.0", "state": "UNAVAILABLE", "reason": "unloaded"} in index
        assert server.get("/v2/models/tiny/versions/1.10.0").status == 404
        reply = server.manage("models/tiny/load")
        assert reply.status == 200, reply
        swapped = time.monotonic()
        wait_for(lambda: load.answers[-1][0] > swapped + 0.3)
    assert load.lost == []
    assert {version for when, version in load.answers if when > swapped + 0.1} == {"1.10.0"}
    assert "1.2.0" in {version for when, version in load.answers if when < swapped}
    for version in ("1.2.0", "1.10.0"):
        reply = server.post(f"/v2/models/tiny/versions/{version}/infer", bytes(64), RAW)
        assert (
            json.loads(reply.body[: int(reply.headers["inference-header-content-length"])])["model_version"] == version
        )
    assert {(each["version"], each["state"]) for each in server.manage("index").json()} == {
        ("1.2.0", "READY"), ("1.10.0", "READY"),
    }  # fmt: skip


def test_a_broken_version_is_refused_and_the_old_one_serves_on(repository: tuple[Server, Path]) -> None:
    server, folder = repository
    wrong = ModelFiles("onnx", {"model.onnx": onnx_model(bias=np.array([9.0, 0, 0], np.float32))}, NCHW, SCORES, 1e-4)
    from edgekit.runner import bundle

    images = samples()
    with loaded(server, 2) as load:
        broken = folder / "tiny-3.edge.zip"
        bundle.write(broken, manifest_for(wrong, version="3.0.0"), members_for(wrong, images, reference(images)))
        reply = server.manage("models/tiny/load")
        assert reply.status == 400
        assert "golden samples" in reply.error
        good = (folder / "tiny-1.edge.zip").read_bytes()
        for content in (good[: len(good) // 2], b""):
            broken.write_bytes(content)
            assert {"name": "tiny-3", "version": "", "state": "UNAVAILABLE", "reason": "unloaded"} in server.manage(
                "index"
            ).json()
            reply = server.manage("models/tiny-3/load")
            assert reply.status == 400
            assert "tiny-3.edge.zip" in reply.error
            assert answers(server)
        broken.unlink()
        assert server.manage("models/tiny/load").status == 200
    assert load.lost == []
    assert "Traceback" not in server.log_text()
    assert "internal error" not in server.log_text()


def test_what_is_unloaded_is_404_until_it_is_loaded(repository: tuple[Server, Path]) -> None:
    server, _ = repository
    assert server.manage("models/tiny/unload", b'{"parameters": {"unload_dependents": false}}').status == 200
    assert server.post(INFER, bytes(64), RAW).status == 404
    assert server.get("/v2/models/tiny/ready").status == 404
    assert server.get("/v2/health/ready").status == 200
    assert {each["state"] for each in server.manage("index").json()} == {"UNAVAILABLE"}
    assert server.manage("models/tiny/unload").status == 400
    assert server.manage("models/tiny/load").status == 200
    assert server.post(INFER, bytes(64), RAW).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("models/tiny/load", b'{"parameters": {"config": "{}"}}', 400),
        ("models/tiny/load", b'{"parameters": {"file:1/model.onnx": "AAAA"}}', 400),
        ("models/tiny/load", b'{"parameters": 7}', 400), ("models/tiny/load", b"{", 400),
        ("models/tiny/load", b"[" * 5000, 400), ("models/nobody/load", b"", 400), ("models/nobody/unload", b"", 400),
        ("models/..%2f..%2fetc%2fpasswd/load", b"", 404), ("models/../load", b"", 400),
        ("models//load", b"", 400), ("models/%00/load", b"", 400),
        ("models/tiny/delete", b"", 404), ("models", b"", 404), ("", b"", 404),
    ],
)  # fmt: skip
def test_only_the_folder_is_served_from(repository: tuple[Server, Path], path: str, body: bytes, status: int) -> None:
    server, _ = repository
    reply = server.manage(path, body)
    assert reply.status == status, reply
    assert reply.error.isprintable()
    assert answers(server)


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command, where it is to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "edgekit.runner", "serve", *map(str, arguments)], cwd=ROOT, text=True, timeout=100,
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


FREE = ("--port", "0", "--admin-port", "0")


def sentence(ended: subprocess.CompletedProcess[str], code: int) -> str:
    """The message: one line, no traceback, nothing listens."""
    assert ended.returncode == code, ended
    assert "Traceback" not in ended.stderr
    assert "ready on" not in ended.stderr
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1, ended.stderr
    return lines[0]


def test_a_bundle_that_fails_its_golden_vectors_is_not_served(tmp_path: Path) -> None:
    from edgekit.runner import bundle

    wrong = ModelFiles("onnx", {"model.onnx": onnx_model(bias=np.array([9.0, 0, 0], np.float32))}, NCHW, SCORES, 1e-4)
    images, path = samples(), tmp_path / "wrong.edge.zip"
    bundle.write(path, manifest_for(wrong), members_for(wrong, images, reference(images)))
    assert "golden samples" in sentence(run(*FREE, path), 5)


def test_a_bundle_that_was_changed_is_not_served(tmp_path: Path, bundles: dict[str, Path]) -> None:
    path = tmp_path / "changed.edge.zip"
    path.write_bytes(bundles["onnx"].read_bytes()[:-100])
    assert "changed.edge.zip" in sentence(run(*FREE, path), 4)


def test_a_file_that_is_missing_and_a_folder_without_bundles_are_named(tmp_path: Path) -> None:
    assert "nowhere" in sentence(run(*FREE, tmp_path / "nowhere.edge.zip"), 4)
    assert str(tmp_path) in sentence(run(*FREE, tmp_path), 4)


def test_ports_in_use_are_named(bundles: dict[str, Path], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", port, "--admin-port", "none", bundles["onnx"])
        assert f"{port}" in sentence(ended, 4)
        ended = run("--port", 0, "--admin-port", port, bundles["onnx"])
    assert ended.returncode == 4
    assert f"{port}: cannot listen there" in ended.stderr
    assert "Traceback" not in ended.stderr
    ended = run("--uds", tmp_path / "no" / "folder", "--admin-port", "none", bundles["onnx"])
    assert "--uds" in sentence(ended, 4)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--worker", "0"], "--worker"), (["--workers", "-1"], "-1"), (["--port", "70000"], "70000"),
        (["--receive-s", "x"], "x"), (["--misspelt"], "--misspelt"), (["--deadline-ms", "nan"], "nan"),
        (["--uds", "a", "--port", "1"], "--uds"), (["--certificate", "a"], "a"),
        (["--token-file", "nowhere"], "nowhere"),
    ],
)  # fmt: skip
def test_a_flag_that_is_wrong_is_refused(bundles: dict[str, Path], arguments: list[str], word: str) -> None:
    ended = run(*arguments, bundles["onnx"])
    assert ended.returncode in (2, 4)
    assert word in ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_its_packages_the_server_says_what_to_install(bundles: dict[str, Path], tmp_path: Path) -> None:
    """A folder in front hides the packages: what lies there is no module."""
    hide = "HIDDEN = ('uvloop', 'prometheus_client')\nimport sys; sys.path_importer_cache.clear()\n"
    hide += "import importlib.machinery as m\nfind = m.PathFinder.find_spec\n"
    hide += "def find_spec(name, *more):\n    return None if name in HIDDEN else find(name, *more)\n"
    hide += "m.PathFinder.find_spec = find_spec\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    ended = subprocess.run(
        [sys.executable, "-m", "edgekit.runner", "serve", str(bundles["onnx"])], cwd=ROOT, text=True, timeout=60,
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
    )  # fmt: skip
    assert "pip install uvloop prometheus-client" in sentence(ended, 5)


def test_another_release_of_uvicorn_is_refused_with_the_line_that_installs_the_right_one(
    bundles: dict[str, Path], tmp_path: Path
) -> None:
    metadata = tmp_path / "uvicorn-0.30.6.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: uvicorn\nVersion: 0.30.6\n")
    message = sentence(run(bundles["onnx"], PYTHONPATH=f"{tmp_path}:{ROOT}"), 5)
    assert "this is 0.30.6" in message and "pip install uvicorn~=0.54.0" in message


def test_help_names_every_option() -> None:
    ended = run("--help")
    assert ended.returncode == 0
    for word in ("--workers", "--uds", "--token-file", "--receive-s", "--drain-s", "--max-connections"):
        assert word in ended.stdout


def test_a_unix_socket_is_served_and_removed(start: Start, bundles: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "socket"
    server = start(bundles["onnx"], "--uds", path)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        connection.connect(str(path))
        connection.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b" 200 " in connection.recv(4096)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0
    assert not path.exists()


def test_a_server_that_is_stopped_while_it_starts_ends_at_once(start: Start, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = start(folder, "--port", port, ready=False)
    server.wait_for_log("validated on")
    with pytest.raises(ConnectionRefusedError):  # who came now would wait for all self-tests
        socket.create_connection(("127.0.0.1", port), timeout=5)
    server.signal(signal.SIGTERM)
    assert server.wait(30) == 0
    assert "ready on" not in server.log_text()


@pytest.mark.parametrize("how", ["another version", "no bundle", "removed"])
def test_a_worker_that_dies_is_started_again_from_the_bytes_that_were_proven(
    start: Start, bundles: dict[str, Path], tmp_path: Path, how: str
) -> None:
    path = tmp_path / "tiny.edge.zip"
    shutil.copy(bundles["onnx"], path)
    server = start(path)
    if how == "another version":
        changed(bundles["onnx"], tmp_path / "next", version="2.0.0").replace(path)
    elif how == "no bundle":
        path.write_bytes(b"half of a bundle")
    else:
        path.unlink()
    [worker] = server.workers
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: server.workers not in ([], [worker]) and "ended" in server.log_text(), 20)
    assert server.get("/v2/models/tiny").json()["versions"] == ["1.2.0"]
    assert server.post(INFER, samples(1)[0].tobytes(), RAW).status == 200
    assert "cannot start" not in server.log_text()
    if how == "another version":
        assert server.manage("models/tiny/load").status == 200
        assert server.get("/v2/models/tiny").json()["versions"] == ["2.0.0"]


def test_reloads_leave_no_copy_open(start: Start, bundles: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "tiny.edge.zip"
    shutil.copy(bundles["onnx"], path)
    server = start(path)

    def copies() -> int:
        links = [os.readlink(each) for each in Path(f"/proc/{server.process.pid}/fd").iterdir() if each.is_symlink()]
        return sum("edgekit-bundle" in each for each in links)

    for number in (2, 3, 4):
        changed(bundles["onnx"], tmp_path / "next", version=f"{number}.0.0").replace(path)
        assert server.manage("models/tiny/load").status == 200
        assert copies() == 1
    path.write_bytes(b"no bundle")
    assert server.manage("models/tiny/load").status == 400
    assert copies() == 1
