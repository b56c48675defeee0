"""What web pages may do here: a page of another origin orders nothing, and our own page runs its own script alone."""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from collections.abc import Iterable

from edgekit.serve.errors import RequestError

OWN_SITES = (b"same-origin", b"none")
"""What a browser says in `Sec-Fetch-Site` where no other page asks: `none` is what somebody typed."""


def check_no_page(headers: Iterable[tuple[bytes, bytes]], host: str) -> None:
    """RequestError for a request that a web page has a browser send; `host` is the address that the port listens on.

    Being on loopback is no authentication: any page may send to 127.0.0.1, with a form or without reading the answer.
    A browser names the page's origin then.
    """
    check_host(headers, host)
    for name, value in headers:
        if name == b"origin" or (name == b"sec-fetch-site" and value not in OWN_SITES):
            raise RequestError(
                403, f"{name.decode()}: got {value.decode('latin-1')}; this port takes nothing from web pages"
            )
        if name == b"content-type" and value.partition(b";")[0].strip().lower() != b"application/json":
            raise RequestError(
                415, f"Content-Type: got {value.decode('latin-1')}; use application/json, or send no body"
            )


def check_host(headers: Iterable[tuple[bytes, bytes]], host: str) -> None:
    """RequestError (403) where a port on loopback is asked under a name that some page pointed here.

    That page (DNS rebinding) may read the answer. On other addresses nothing is checked: machines have many names.
    """
    given = [value.decode("latin-1") for name, value in headers if name == b"host"]
    if _is_loopback(host) and not all(_is_here(each, host) for each in given):
        raise RequestError(403, f"Host: got {', '.join(given)}; use localhost, or this machine's address")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_here(given: str, host: str) -> bool:
    name = re.sub(r":\d*$", "", given).strip("[]").lower()
    return name in ("localhost", host.lower()) or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def policy(page: bytes) -> list[tuple[bytes, bytes]]:
    """Headers of our own page: its script and style alone run, it asks this server alone, no page frames it."""
    script, style = (_hash(page, tag) for tag in (b"script", b"style"))
    directives = (
        "default-src 'none'", f"script-src {script}", f"style-src {style}", "connect-src 'self'", "img-src 'self'",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    )  # fmt: skip
    return [
        (b"content-security-policy", "; ".join(directives).encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
    ]


def _hash(page: bytes, tag: bytes) -> str:
    [text] = re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'"
