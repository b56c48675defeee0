"""What a web page may have a browser send to the admin port, and what our own page may do."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest

from edgekit.serve.errors import RequestError
from edgekit.serve.page import PAGE, check_no_page, policy
from tests.serve.conftest import Start
from tests.serve.server import Server

LOOPBACK = "127.0.0.1"
JSON = "application/json"
TAKEN = [
    {}, {"Host": "127.0.0.1:8002"}, {"Host": "localhost:8002"}, {"Host": "LOCALHOST"}, {"Host": "[::1]:8002"},
    {"Host": "192.168.1.7:8002"}, {"Content-Type": JSON}, {"Content-Type": f"{JSON}; charset=utf-8"},
    {"Sec-Fetch-Site": "none"},
]  # fmt: skip
FROM_PAGES = [
    ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://127.0.0.1:8000"}, 403),
    ({"Origin": ""}, 403), ({"Sec-Fetch-Site": "cross-site"}, 403), ({"Sec-Fetch-Site": "same-site"}, 403),
    ({"Host": "evil.example"}, 403), ({"Host": "evil.example:8002"}, 403), ({"Host": "127.0.0.1.evil.example"}, 403),
    ({"Host": "localhost.evil.example:8002"}, 403), ({"Host": "127.0.0.1@evil.example"}, 403), ({"Host": ""}, 403),
    ({"Content-Type": "application/x-www-form-urlencoded"}, 415), ({"Content-Type": "text/plain"}, 415),
    ({"Content-Type": "multipart/form-data; boundary=x"}, 415), ({"Content-Type": "text/plain, application/json"}, 415),
]  # fmt: skip


def check(headers: dict[str, str], host: str = LOOPBACK) -> None:
    check_no_page([(name.lower().encode(), value.encode()) for name, value in headers.items()], host)


@pytest.mark.parametrize("headers", TAKEN, ids=str)
@pytest.mark.parametrize("host", [LOOPBACK, "::1", "localhost"])
def test_what_no_page_sends_is_taken(headers: dict[str, str], host: str) -> None:
    check(headers, host)


@pytest.mark.parametrize(("headers", "status"), FROM_PAGES, ids=str)
def test_what_a_page_has_a_browser_send_is_refused(headers: dict[str, str], status: int) -> None:
    with pytest.raises(RequestError) as caught:
        check(headers)
    assert caught.value.status == status


def test_a_port_that_is_not_on_loopback_has_any_name_and_still_obeys_no_page() -> None:
    for host in ("0.0.0.0", "192.168.1.7", "door-1"):
        check({"Host": "door-1:8002"}, host)
        with pytest.raises(RequestError):
            check({"Host": "door-1:8002", "Origin": "http://door-1:8002"}, host)


def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    csp = dict(policy(PAGE))[b"content-security-policy"].decode()
    [script] = re.findall(rb"<script>(.*)</script>", PAGE, re.DOTALL)
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'" in csp
    assert "unsafe" not in csp
    assert "default-src 'none'" in csp and "frame-ancestors 'none'" in csp
    assert not re.findall(rb"<[^>]* (?:on\w+|style)=", PAGE)  # which the policy would forbid


@pytest.mark.processes
def test_the_second_port_obeys_no_page_and_the_first_says_what_its_page_may_do(
    start: Start, bundles: dict[str, Path]
) -> None:
    server: Server = start(bundles["onnx"])
    for headers, status in FROM_PAGES:
        if headers.get("Host") != "":
            reply = server.ask("POST", "/v2/repository/models/tiny/unload", b"", headers, url=server.admin)
            assert reply.status == status, (headers, reply)
    assert server.ask("GET", "/metrics", headers={"Host": "evil.example"}, url=server.admin).status == 403
    assert server.ask("GET", "/status", headers={"Host": "evil.example"}).status == 403
    assert server.get("/status").status == server.get("/v2/models/tiny").status == 200
    assert "script-src 'sha256-" in server.get("/").headers["content-security-policy"]
    assert server.ask("POST", "/v2/repository/index", b"{}", {"Content-Type": JSON}, url=server.admin).status == 200
