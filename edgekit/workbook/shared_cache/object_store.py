"""Objects in S3, Google Cloud Storage or Azure, through obstore; credentials come from the environment alone."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from edgekit.core.errors import ConfigError
from edgekit.workbook.shared_cache.store import Found, StoreError

if TYPE_CHECKING:
    import obstore

CONNECT_S = 5
STALL_S = 20
"""Longest time without a byte; `in_time` limits the whole."""
RETRIES = 2
PIECE_BYTES = 1 << 20
CAUSES = (
    (r"169\.254\.|metadata", "there are no credentials in the environment"),
    (r"connection refused", "connection refused"),
    (r"dns error|failed to lookup", "its name is not known"),
    (r"timed ?out", "no answer in time"),
    (r"certificate", "its certificate is not trusted"),
    (r"BadScheme", "it is no https, and AWS_ALLOW_HTTP is not set"),
    (r"account must be specified", "AZURE_STORAGE_ACCOUNT_NAME is not set"),
    (r"connection (reset|closed)|incomplete|unexpected eof|error decoding response body", "the connection broke off"),
    (r"error trying to connect|error sending request", "no connection"),
)
"""What to look for in an error, and its words. Its own text is not shown: a store may put a signed URL into it."""


class ObjectStore:
    """See `Store`. Nothing is asked of the store before the first object."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            from obstore.store import from_url
        except ImportError:
            raise ConfigError(f"cache {url}: needs obstore, of the extra cache: pip install obstore") from None
        try:
            self._store: obstore.store.ObjectStore = from_url(
                url,
                client_options={
                    "connect_timeout": timedelta(seconds=CONNECT_S),
                    "read_timeout": timedelta(seconds=STALL_S),
                    "timeout": timedelta(hours=1),
                    "allow_http": _allows_http(),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": timedelta(seconds=STALL_S)},
            )
        except Exception as error:  # obstore has no class of its own for a bad URL or a bad variable
            raise ConfigError(f"cache {url}: cannot be used: {_words(error)}") from None

    def read(self, path: str) -> Iterator[bytes] | None:
        """See `Store.read`."""
        import obstore

        try:
            found = obstore.get(self._store, path)
        except FileNotFoundError:
            return None
        except Exception as error:
            _raise(error)
        return _pieces(found)

    def create(self, path: str, content: Path | bytes) -> bool:
        """See `Store.create`. The object is in memory meanwhile, for only a whole one can be created in one step."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            obstore.put(self._store, path, content, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except FileNotFoundError:
            raise StoreError("refused", "there is no such bucket") from None
        except Exception as error:
            _raise(error)
        return True

    def list(self, prefix: str) -> Iterator[Found]:
        """See `Store.list`."""
        import obstore

        folder, _, begins = prefix.rpartition("/")
        now = datetime.now(timezone.utc)
        try:
            for found in (each for piece in obstore.list(self._store, folder or None) for each in piece):
                if found["path"].startswith(prefix if folder else begins):
                    age_s = (now - found["last_modified"]).total_seconds()
                    yield Found(found["path"], found["size"], max(age_s, 0.0))
        except Exception as error:
            _raise(error)

    def remove(self, path: str) -> None:
        """See `Store.remove`."""
        import obstore

        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            return
        except Exception as error:
            _raise(error)


def _allows_http() -> bool:
    """Whether the environment allows a store without encryption; given options hide this variable from obstore."""
    names = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP")
    return any(os.environ.get(name, "").lower() in ("1", "true", "yes") for name in names)


def _pieces(found: Any) -> Iterator[bytes]:
    try:
        for piece in found.stream(min_chunk_size=PIECE_BYTES):
            yield bytes(piece)
    except Exception as error:
        _raise(error)


def _raise(error: Exception) -> NoReturn:
    """The StoreError for an error of obstore's, which has one class for nearly all."""
    from obstore import exceptions

    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):  # of the local file that is given
        raise error
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
        raise StoreError("refused", "it refused access; give credentials in the environment") from None
    raise StoreError("unreachable", _words(error)) from None


def _words(error: Exception) -> str:
    text = str(error)
    for pattern, words in CAUSES:
        if re.search(pattern, text, re.IGNORECASE):
            return words
    status = re.search(r"status(?: code)?:? (\d{3})|HTTP (\d{3})|(\d{3}) [A-Z][a-z]+", text)
    return f"it answered {next(filter(None, status.groups()))}" if status else type(error).__name__
