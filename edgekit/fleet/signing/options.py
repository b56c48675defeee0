"""Parse structured options of `edgekit trust`. Raises ConfigError for a malformed one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from datetime import date as day
from pathlib import Path

from edgekit.core.errors import ConfigError
from edgekit.device.trust.signed_json import LARGEST_NUMBER


def parse_date(text: str | None) -> float | None:
    """Return the seconds since 1970 of the beginning of a day, in UTC."""
    if text is None:
        return None
    try:
        date = day.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--until {text}: not a date; write 2027-01-31") from None
    return datetime(date.year, date.month, date.day, tzinfo=UTC).timestamp()


def parse_revocations(names: Sequence[str], below: Sequence[str]) -> tuple[Sequence[str], dict[str, int]]:
    """Return the names of signers, and the lowest counter of each bundle. At least one of the two must be given."""
    if not names and not below:
        raise ConfigError("edgekit trust revoke: names no signer; give NAME, or --below BUNDLE=COUNTER")
    minimum = {}
    for text in below:
        name, _, counter = text.partition("=")
        if not counter.isdecimal() or int(counter) > LARGEST_NUMBER:
            raise ConfigError(f"--below {text[:80]}: write BUNDLE=COUNTER, for example digits=7")
        minimum[name] = int(counter)
    return names, minimum


def parse_keys(texts: Sequence[str]) -> dict[str, Path]:
    """Return the file of the new public key of each signer, by the signer's name."""
    keys = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not path or name in keys:
            raise ConfigError(f"{text[:80]}: write NAME=KEY.pub once for each signer, for example anna=anna-2.pub")
        keys[name] = Path(path)
    return keys
