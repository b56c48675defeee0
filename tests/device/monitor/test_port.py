"""`/metrics` on a port of this machine, with scrapers that are slow, many or rude."""

from __future__ import annotations

import http.client
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.device.monitor import metrics_server
from edgekit.device.monitor.metrics import Metrics
from edgekit.runner import load
from edgekit.runner.errors import InputError
from edgekit.runner.model import Model
from tests.device.monitor.scraped import value
from tests.runner import flat

SAMPLE = flat.examples(flat.VECTOR, 1)[0]
COUNT = "edgekit_request_duration_seconds_count"
Scraped = tuple[Model, int]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flat.write(tmp_path_factory.mktemp("bundle") / "flat.edge.zip", flat.VECTOR)


@pytest.fixture
def scraped(bundle: Path) -> Iterator[Scraped]:
    """A model, and the port that shows its figures."""
    metrics = Metrics("127.0.0.1:0")
    assert metrics.where is not None
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics", metrics.where)
    assert found
    yield load(bundle, trial=False, metrics=metrics), int(found[1])
    metrics.close()


def ask(number: int, method: str = "GET", path: str = "/metrics") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=30)
    connection.request(method, path)
    answer = connection.getresponse()
    found = answer.status, answer.headers.get("Content-Type", ""), answer.read()
    connection.close()
    return found


def test_a_scraper_gets_the_figures_as_they_are_now(scraped: Scraped) -> None:
    model, number = scraped
    for calls in (1, 2, 3):
        model.predict(SAMPLE)
        status, kind, page = ask(number)
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert value(page, COUNT, model="tiny", version="1.2.0") == calls


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics/../etc/passwd", 404),
        ("GET", "/metrics?name=x", 200),
        ("HEAD", "/metrics", 200),
        ("POST", "/metrics", 501),
        ("DELETE", "/metrics", 501),
    ],
)
def test_it_is_read_only_and_has_one_page(scraped: Scraped, method: str, path: str, status: int) -> None:
    found, _, page = ask(scraped[1], method, path)
    assert found == status and (page == b"") == (method == "HEAD")
    assert b"Traceback" not in page and b"Python" not in page


def test_a_port_that_is_taken_is_one_clear_error(scraped: Scraped, bundle: Path) -> None:
    message = rf"^metrics: cannot listen on 127\.0\.0\.1:{scraped[1]}: Address already in use; use a free port, or"
    with pytest.raises(InputError, match=message):
        load(bundle, trial=False, metrics=f"127.0.0.1:{scraped[1]}")
    assert ask(scraped[1])[0] == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "[::]", "example.org", "127.0.0.1.example.org"])
def test_a_host_that_others_could_reach_is_refused(host: str) -> None:
    with pytest.raises(InputError, match=r"^metrics: got '.*', which other machines can reach; use 127\.0\.0\.1:9100$"):
        Metrics(f"{host}:9100")


@pytest.mark.parametrize(
    ("where", "found"),
    [("localhost:1", ("127.0.0.1", 1)), ("127.9.9.9:0", ("127.9.9.9", 0)), ("[::1]:9100", ("::1", 9100))],
)
def test_every_name_of_this_machine_will_do(where: str, found: tuple[str, int]) -> None:
    assert metrics_server.parse_address(where) == found


def test_the_end_of_the_model_frees_the_port(bundle: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    number = taken.getsockname()[1]
    taken.close()
    for _ in range(3):
        model = load(bundle, trial=False, metrics=f"127.0.0.1:{number}")
        assert ask(number)[0] == 200
        model.observers.close()
        with pytest.raises(ConnectionRefusedError):
            ask(number)


def test_a_bundle_that_does_not_load_frees_the_port(tmp_path: Path, bundle: Path) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    number = taken.getsockname()[1]
    taken.close()
    (tmp_path / "torn.edge.zip").write_bytes(b"torn")
    with pytest.raises(Exception, match="torn"):
        load(tmp_path / "torn.edge.zip", trial=False, metrics=f"127.0.0.1:{number}")
    load(bundle, trial=False, metrics=f"127.0.0.1:{number}").observers.close()


def test_silent_connections_are_bounded_and_keep_no_model_from_its_work(scraped: Scraped) -> None:
    model, number = scraped
    silent = [socket.create_connection(("127.0.0.1", number)) for _ in range(metrics_server.MAX_CONNECTIONS)]
    time.sleep(0.2)
    for _ in range(1000):
        model.predict(SAMPLE)
    with socket.create_connection(("127.0.0.1", number)) as one_more:
        one_more.settimeout(30)
        assert one_more.recv(1) == b""
    for connection in silent:
        connection.close()
    until = time.monotonic() + 30
    page = b""
    while not page and time.monotonic() < until:
        try:
            page = ask(number)[2]
        except (http.client.HTTPException, ConnectionError):
            time.sleep(0.02)
    assert value(page, COUNT) == 1000


def test_rude_requests_get_an_answer_or_none_and_the_next_one_is_served(
    scraped: Scraped, capfd: pytest.CaptureFixture[str]
) -> None:
    for request in (b"\0\xff\n\n", b"GET\r\n\r\n", b"GET /metrics HTTP/9.9\r\n\r\n", b"GET " + b"/" * 70_000, b""):
        with socket.create_connection(("127.0.0.1", scraped[1])) as connection:
            connection.sendall(request)
    assert ask(scraped[1])[0] == 200
    assert capfd.readouterr().err == ""


@pytest.mark.processes
def test_a_scraper_that_sends_a_letter_a_second_is_cut_off(scraped: Scraped) -> None:
    with socket.create_connection(("127.0.0.1", scraped[1])) as dripping:
        began = time.monotonic()
        try:
            while time.monotonic() - began < 30:
                dripping.sendall(b"G")
                time.sleep(0.5)
        except OSError:
            pass
        assert time.monotonic() - began < 30
    assert ask(scraped[1])[0] == 200
