"""Read the signed files: each is small and read only once, its JSON is unambiguous, and its times have one spelling."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from edgekit.runner.errors import TrustError, bounded_recursion
from edgekit.runner.files import NO_FOLLOW, READ_FILE

LARGEST_NUMBER = 2**53
"""Larger whole numbers are not the same in every JSON reader."""


def read_small(path: Path, most_bytes: int, fix: str) -> bytes:
    """Return the bytes of a regular file, not a link.

    Raises TrustError with `fix` if there is none or it is too large.
    """
    try:
        handle = os.open(path, READ_FILE | NO_FOLLOW)
    except OSError as error:
        raise TrustError(f"{path}: cannot be read ({error.strerror}); {fix}") from None
    with open(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise TrustError(f"{path}: not a regular file; {fix}")
        data = stream.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise TrustError(f"{path}: more than {most_bytes} bytes; {fix}")
    return data


def parse_object(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object in UTF-8. Raises TrustError for a duplicate key, NaN or unbounded nesting."""
    try:
        with bounded_recursion():
            value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise TrustError(f"{where}: not JSON as edgekit writes it ({str(error)[:100]}); make it again") from None
    if not isinstance(value, dict):
        raise TrustError(f"{where}: holds a {type(value).__name__}, but must hold an object; make it again")
    return value


def require_keys(values: Any, keys: set[str], where: str) -> None:
    """Raise TrustError unless `values` is an object with exactly these keys."""
    if not isinstance(values, dict) or values.keys() != keys:
        got = sorted(values) if isinstance(values, dict) else type(values).__name__
        raise TrustError(
            f"{where}: has the keys {str(got)[:200]}, but must have {sorted(keys)}; make it with the same edgekit"
        )


def parse_count(value: Any, least: int, where: str) -> int:
    """Check a whole number. Raises TrustError for any other value."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= LARGEST_NUMBER:
        raise TrustError(f"{where}: got {str(value)[:60]!r}; it must be a whole number from {least} to 2^53")
    return value


def parse_time(value: Any, where: str) -> float:
    """Return the seconds since 1970 of `2027-01-31T12:00:00Z`. Raises TrustError for any other spelling."""
    try:
        moment = datetime.fromisoformat(value[:-1]).replace(tzinfo=timezone.utc).timestamp()
        if format_time(moment) == value:
            return moment
    except (TypeError, ValueError, OverflowError):
        pass
    raise TrustError(f"{where}: got {str(value)[:60]!r}; it must be a time such as 2027-01-31T12:00:00Z")


def format_time(at_s: float) -> str:
    """Format a time, to the second, in the spelling that `parse_time` reads."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key occurs twice")
    return values


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")
