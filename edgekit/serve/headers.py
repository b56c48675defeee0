"""What a request's headers say: who asks, how long the JSON is, how long the answer may take."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from edgekit.serve.errors import RequestError

Headers = Mapping[bytes, bytes]

DEADLINE = b"x-request-timeout-ms"
HEADER_LENGTH = b"inference-header-content-length"
LONGEST_NUMBER = 18
"""Digits of a number that is read."""


def check_token(tokens: tuple[bytes, ...], headers: Headers) -> None:
    """RequestError (401) unless one of the tokens is given; all are compared, in constant time."""
    kind, _, token = headers.get(b"authorization", b"").partition(b" ")
    right = [hmac.compare_digest(token.strip(), each) for each in tokens]
    if kind.lower() != b"bearer" or not any(right):
        raise RequestError(401, "Authorization: give Bearer and a token of this server")


def header_bytes(headers: Headers) -> int | None:
    """Length of the JSON before binary tensors; None where all is JSON, 0 where nothing is."""
    value = headers.get(HEADER_LENGTH)
    if value is None:
        return None
    if not value.isdigit():
        raise RequestError(400, f"Inference-Header-Content-Length: got {value.decode('latin-1')}; use a whole number")
    return int(value[:LONGEST_NUMBER])


def check_json(length: int, most: int) -> None:
    """RequestError (413) where the JSON before binary tensors is longer than `most` bytes."""
    if length > most:
        raise RequestError(
            413, f"Inference-Header-Content-Length: got {length} bytes of JSON, at most {most} are taken"
        )


def deadline_ms(headers: Headers) -> float:
    """What the client grants, in ms from the request's arrival; 0 where it says nothing."""
    value = headers.get(DEADLINE)
    if value is None:
        return 0.0
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 < found < 1e9:
        raise RequestError(400, f"X-Request-Timeout-Ms: got {value.decode('latin-1')}; use milliseconds above 0")
    return found


def check_body(headers: Headers, most: int, what: str = "bytes") -> None:
    """RequestError (413) where the body is announced to be longer than `most` bytes, (415) where it is compressed."""
    stated = headers.get(b"content-length", b"0")[:LONGEST_NUMBER]
    if stated.isdigit() and int(stated) > most:
        raise RequestError(413, f"body: got {int(stated)} {what}, at most {most} are taken")
    coding = headers.get(b"content-encoding", b"identity")
    if coding.lower() != b"identity":
        raise RequestError(415, f"Content-Encoding: got {coding.decode('latin-1')}; send the body as it is")
