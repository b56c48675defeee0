"""Options of `edgekit trust` that are more than a word; ConfigError for one that is misspelt."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from datetime import date as day
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.device.trust.signed_json import LARGEST_NUMBER


def parse_date(text: str | None) -> float | None:
    """Seconds since 1970 of the beginning of a day, in UTC."""
    if text is None:
        return None
    try:
        found = day.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--until {text}: not a date; write 2027-01-31") from None
    return datetime(found.year, found.month, found.day, tzinfo=UTC).timestamp()


def parse_revocations(names: Sequence[str], below: Sequence[str]) -> tuple[Sequence[str], dict[str, int]]:
    """Names of signers, and by bundle the least counter; one of the two must be given."""
    if not names and not below:
        raise ConfigError("edgekit trust revoke: names no signer; give NAME, or --below BUNDLE=COUNTER")
    found = {}
    for text in below:
        name, _, counter = text.partition("=")
        if not counter.isdecimal() or int(counter) > LARGEST_NUMBER:
            raise ConfigError(f"--below {text[:80]}: write BUNDLE=COUNTER, for example digits=7")
        found[name] = int(counter)
    return names, found


def parse_keys(texts: Sequence[str]) -> dict[str, Path]:
    """By signer, the file of a new public key."""
    found = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not path or name in found:
            raise ConfigError(f"{text[:80]}: write NAME=KEY.pub once for each signer, for example anna=anna-2.pub")
        found[name] = Path(path)
    return found
