"""Tokens of those who may ask, one a line of a file that nobody else can read."""

from __future__ import annotations

import os

from edgekit.runner.errors import InputError

SHORTEST = 16


def read_tokens(path: str) -> tuple[bytes, ...]:
    """Tokens as bytes; none without a path; InputError for a file that is no list of tokens, or that all may read."""
    if not path:
        return ()
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            lines = [line.strip() for line in stream.read(1 << 20).splitlines()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if mode & 0o007:
        raise InputError(f"{path}: everybody may read it; run: chmod 600 {path}")
    tokens = tuple(line for line in lines if line and not line.startswith(b"#"))
    if not tokens:
        raise InputError(f"{path}: holds no token; write one a line, of {SHORTEST} characters or more")
    if any(len(token) < SHORTEST or not token.isascii() or b" " in token for token in tokens):
        raise InputError(f"{path}: a token is shorter than {SHORTEST} characters, or not plain ASCII without spaces")
    return tokens
