"""Who may ask: tokens, TLS, loopback; and nothing that a client sends reaches a log line as it is."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from pathlib import Path

import pytest

from tests import requirements
from tests.serve.conftest import Start
from tests.serve.server import INFER, RAW, Server, send_request
from tests.serve.test_lifecycle import FREE, run, sentence

pytestmark = pytest.mark.processes

TOKEN = "a-token-of-some-length"
SECOND = "another-token-of-length"


@pytest.fixture(scope="module")
def server(start: Start, bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Server:
    path = tmp_path_factory.mktemp("tokens") / "tokens"
    path.write_text(f"# two of them\n{TOKEN}\n\n{SECOND}\n")
    path.chmod(0o600)
    return start(bundles["onnx"], "--token-file", path)


PATHS = [
    ("GET", "/v2"),
    ("POST", INFER),
    ("PUT", "/predict"),
    ("GET", "/status"),
    ("GET", "/v2/models/tiny"),
    ("GET", "/x"),
]
WRONG = [
    "",
    "Bearer",
    "Bearer ",
    f"Basic {TOKEN}",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    f"Bearer x {TOKEN}",
    TOKEN,
]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_without_a_token_or_with_a_wrong_one_it_is_401(server: Server, method: str, path: str) -> None:
    for authorization in WRONG:
        headers = {**RAW, **({"Authorization": authorization} if authorization else {})}
        reply = server.ask(method, path, bytes(64) if method != "GET" else None, headers)
        assert reply.status == 401, (authorization, reply)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in reply.error


@pytest.mark.parametrize("authorization", [f"Bearer {TOKEN}", f"bearer {SECOND}", f"BEARER  {TOKEN} "])
def test_a_right_token_is_served(server: Server, authorization: str) -> None:
    assert server.post(INFER, bytes(64), {**RAW, "Authorization": authorization}).status == 200


def test_health_and_the_page_ask_for_no_token(server: Server) -> None:
    for path in ("/", "/v2/health/live", "/v2/health/ready"):
        assert server.get(path).status == 200
    for path in ("/v2/health/ready/../../models/tiny", "//", "/v2/health/live/", "/%2e/status"):
        assert server.get(path).status == 401


def test_the_admin_port_asks_for_the_token_too(server: Server) -> None:
    for method, path in (
        ("GET", "/metrics"),
        ("POST", "/v2/repository/index"),
        ("POST", "/v2/repository/models/tiny/unload"),
    ):
        reply = server.ask(method, path, url=server.admin)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == "Bearer"
    good = {"Authorization": f"Bearer {TOKEN}"}
    assert server.ask("GET", "/metrics", headers=good, url=server.admin).status == 200


def test_the_ports_are_on_this_machine_alone(server: Server) -> None:
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = {server.port, int(server.admin.rpartition(":")[2])}
    found = [
        entry[1].split(":") for entry in listening if entry[3] == "0A" and int(entry[1].split(":")[1], 16) in ports
    ]
    assert len(found) == 2
    assert {address for address, _ in found} == {"0100007F"}


@pytest.mark.parametrize(
    ("text", "mode", "word"),
    [
        (TOKEN, 0o644, "chmod 600"), (TOKEN, 0o604, "chmod 600"), (TOKEN, 0o640, "chmod 600"),
        (TOKEN, 0o660, "chmod 600"), (TOKEN, 0o610, "chmod 600"), (f"{TOKEN}\0", 0o600, "plain ASCII"),
        ("short", 0o600, "16"), ("", 0o600, "no token"),
        ("# nothing\n", 0o600, "no token"), (f"{TOKEN}\nshort\n", 0o600, "16"),
        ("a token with some spaces", 0o600, "spaces"),
        ("töken-töken-töken", 0o600, "ASCII"),
    ],
)  # fmt: skip
def test_a_token_file_that_is_no_secret_is_refused(
    bundles: dict[str, Path], tmp_path: Path, text: str, mode: int, word: str
) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    message = sentence(run(*FREE, "--token-file", path, bundles["onnx"]), 4)
    assert word in message
    assert TOKEN not in message


def test_control_characters_of_a_client_reach_neither_the_log_nor_an_answer(server: Server) -> None:
    good = {"Authorization": f"Bearer {TOKEN}"}
    secret = "ZXCV"
    for path in (
        f"/v2/models/{secret}%0a%1b[31mred/infer", f"/{secret}%00%0d%0aX: y", f"/v2/models/{secret}%e2%80%ae",
        f"/{secret}%ff",
    ):  # fmt: skip
        for method in ("GET", "POST"):
            reply = server.ask(method, path.replace(" ", "%20"), headers=good)
            assert reply.status in (404, 405)
            assert reply.error.isprintable()
    body = f'{{"inputs": [{{"name": "{secret}\\u001b[31m\\n\\u202e"}}]}}'.encode()
    reply = server.post(INFER, body, {**good, "User-Agent": f"{secret}\x1b[31m"})
    assert reply.status in (400, 404)
    assert reply.error.isprintable()
    for header in ("Inference-Header-Content-Length", "X-Request-Timeout-Ms", "Content-Encoding"):
        reply = server.post(INFER, bytes(64), {**good, **RAW, header: f"{secret}\x85\xff"})
        assert reply.status in (400, 415)
        assert reply.error.isprintable()
    manage = server.ask("POST", f"/v2/repository/models/{secret}%0a%1b[31m/load", headers=good, url=server.admin)
    assert manage.status == 400
    assert manage.error.isprintable()
    log = server.log_text()
    assert secret not in log
    assert all(line.isprintable() for line in log.splitlines())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate that signed itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [requirements.program("openssl"), "req", "-x509",
         "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def test_tls_is_served_to_who_trusts_the_certificate(
    start: Start, bundles: dict[str, Path], pair: tuple[Path, Path]
) -> None:
    certificate, key = pair
    server = start(bundles["onnx"], "--certificate", certificate, "--key", key, "--receive-s", 1)
    assert "https://" in server.log_text()
    trusting = ssl.create_default_context(cafile=str(certificate))
    connection = http.client.HTTPSConnection(server.url, timeout=20, context=trusting)
    for _ in range(3):
        assert send_request(connection, "POST", INFER, bytes(64), RAW).status == 200
    reply = send_request(connection, "POST", INFER, bytes(70 << 20), {**RAW, "Expect": ""})
    assert reply.status in (408, 413)
    connection.close()
    with pytest.raises(ssl.SSLError):
        send_request(http.client.HTTPSConnection(server.url, timeout=20), "GET", "/v2")
    with server.connect() as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain.recv(4096)
    with server.connect() as silent:  # not even a handshake
        assert silent.recv(10) == b""
    assert (
        send_request(http.client.HTTPSConnection(server.url, timeout=20, context=trusting), "GET", "/v2").status == 200
    )


def test_a_pair_that_does_not_fit_is_refused(bundles: dict[str, Path], pair: tuple[Path, Path], tmp_path: Path) -> None:
    certificate, key = pair
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nonsense")
    for one, other in ((wrong, key), (certificate, wrong), (key, certificate)):
        message = sentence(run(*FREE, "--certificate", one, "--key", other, bundles["onnx"]), 4)
        assert "certificate" in message
    assert "--key" in sentence(run(*FREE, "--certificate", certificate, bundles["onnx"]), 4)
