"""Whose trace a request belongs to, and which are traced at all, by spans that real servers sent."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.conftest import samples as images
from tests.serve.conftest import Start
from tests.serve.server import INFER, RAW, Server
from tests.serve.tracing.collector import Collector, Span, collecting

pytestmark = pytest.mark.processes

ONE = images(1).tobytes()
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
GOOD = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def servers(start: Start, folder: Path, collector: Collector) -> dict[str, Server]:
    """By the share that they trace."""
    [path] = folder.glob("*onnx*")
    return {share: start(path, "--trace-to", collector.url, "--trace-share", share) for share in ("0", "0.5", "1")}


def ask(server: Server, **headers: str) -> dict[str, str]:
    """One sample; the answer's headers."""
    reply = server.ask("POST", INFER, ONE, {**RAW, **headers})
    assert reply.status == 200
    return reply.headers


def only(collector: Collector, marker: Server, **headers: str) -> list[Span]:
    """What requests sent before a last one, which is traced for sure and goes to the same server."""
    trace = secrets.token_hex(16)
    ask(marker, traceparent=f"00-{trace}-{PARENT}-01")
    collector.until(lambda: any(span.trace == trace for span in collector.requests()))
    found = [span for span in collector.requests() if span.trace != trace]
    collector.spans.clear()
    return found


def test_a_client_s_trace_goes_on_with_its_state(servers: dict[str, Server], collector: Collector) -> None:
    ask(servers["0"], traceparent=GOOD, tracestate="vendor=a1,other=b2")
    [span] = collector.wait()
    assert (span.trace, span.parent, span.state) == (TRACE, PARENT, "vendor=a1,other=b2")
    assert {(part.trace, part.state) for part in collector.children(span)} == {(TRACE, "vendor=a1,other=b2")}
    collector.spans.clear()


def test_a_client_that_does_not_trace_is_not_traced(servers: dict[str, Server], collector: Collector) -> None:
    answer = ask(servers["1"], traceparent=f"00-{TRACE}-{PARENT}-00")
    assert "server-timing" not in answer
    assert only(collector, servers["1"]) == []


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "x",
        GOOD.upper(),
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"{GOOD}-more",
        f"00-{TRACE}-{PARENT}-0",
        "00-" + "a" * 5000,
        "\xff\xfe",
    ],
)
def test_a_traceparent_that_is_none_begins_a_new_trace(
    bad: str, servers: dict[str, Server], collector: Collector
) -> None:
    ask(servers["1"], traceparent=bad)
    [span] = collector.wait()
    assert span.parent == ""
    assert span.trace != TRACE
    collector.spans.clear()
    assert "traceparent" not in servers["1"].log_text()


def test_two_traceparents_are_none(servers: dict[str, Server], collector: Collector) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nhost: a\r\ninference-header-content-length: 0\r\ncontent-length: {len(ONE)}\r\n"
    with servers["1"].connect() as connection:
        connection.sendall(f"{head}traceparent: {GOOD}\r\ntraceparent: {GOOD}\r\n\r\n".encode() + ONE)
        [span] = collector.wait()
    assert (span.parent, span.trace == TRACE) == ("", False)
    collector.spans.clear()


def test_a_version_to_come_is_read_as_far_as_it_is_known(servers: dict[str, Server], collector: Collector) -> None:
    ask(servers["0"], traceparent=f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like")
    [span] = collector.wait()
    assert (span.trace, span.parent) == (TRACE, PARENT)
    collector.spans.clear()


def test_a_broken_tracestate_does_not_break_the_trace(servers: dict[str, Server], collector: Collector) -> None:
    ask(servers["0"], traceparent=GOOD, tracestate="=,,==x" * 200)
    [span] = collector.wait()
    assert (span.trace, span.parent, span.state) == (TRACE, PARENT, "")
    collector.spans.clear()


@pytest.mark.parametrize(("share", "most"), [("0", 0), ("1", 40)])
def test_of_the_others_the_share_is_traced(
    share: str, most: int, servers: dict[str, Server], collector: Collector
) -> None:
    for _ in range(40):
        ask(servers[share])
    assert len(only(collector, servers[share])) == most


def test_half_are_about_half_and_what_is_traced_says_so(servers: dict[str, Server], collector: Collector) -> None:
    """Of 80, fewer than 10 or more than 70 come once in 10^11 tries."""
    headers = [ask(servers["0.5"]).get("server-timing") for _ in range(80)]
    trace_ids = {re.findall(r"[0-9a-f]{32}", each)[0] for each in headers if each}
    found = only(collector, servers["0.5"])
    assert 10 <= len(found) <= 70
    assert {span.trace for span in found} == trace_ids


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--trace-to", "localhost:4318", "use http://HOST:PORT"),
        ("--trace-to", "http://user:secret@host", "OTEL_EXPORTER_OTLP_HEADERS"),
        ("--trace-to", "http://", "use http://HOST:PORT"),
        ("--trace-to", "http://ho st:4318", "use http://HOST:PORT"),
        ("--trace-to", "http://host\n:4318", "use http://HOST:PORT"),
        ("--trace-share", "1.5", "from 0 to 1"),
        ("--trace-share", "nan", "from 0 to 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(start: Start, option: str, value: str, message: str) -> None:
    server = start("nothing", option, value, ready=False)
    assert server.wait() == 2
    assert message in server.log_text()
    assert "secret" not in server.log_text()
