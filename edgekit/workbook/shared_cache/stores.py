"""Where a shared cache keeps its objects: in a folder, or in an object store."""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from edgekit.core.errors import ConfigError
from edgekit.runner.files import make_folder, remove_quietly, sync_folder

if TYPE_CHECKING:
    import obstore

Kind = Literal["unreachable", "refused", "full", "read-only", "damaged"]


class StoreError(Exception):
    """An operation failed; `kind` says in which way, the message says it in words without any credential."""

    def __init__(self, kind: Kind, words: str) -> None:
        super().__init__(words)
        self.kind: Kind = kind


@dataclass(frozen=True)
class Found:
    """An object of a listing; `age_s` is in seconds."""

    path: str
    size_bytes: int
    age_s: float


class Store(Protocol):
    """Objects by their names, such as `cas/0a1b…`; nothing is ever changed, only created and removed."""

    url: str

    def read(self, path: str) -> Iterator[bytes] | None:
        """The bytes of an object in pieces; None where there is no such object."""

    def create(self, path: str, content: Path | bytes) -> bool:
        """Create an object in one step; False where one of this name is there, which then stays as it is."""

    def list(self, prefix: str) -> Iterator[Found]:
        """The objects whose name begins with `prefix`, a folder such as `keys/` and what follows."""

    def remove(self, path: str) -> None:
        """Remove an object; nothing happens where there is none."""


PIECE_BYTES = 1 << 20
WORKING = ".tmp-"
"""How the name of a file begins that is being written; a killed writer leaves it, `edgekit cache prune` removes it."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)


class FolderStore:
    """See `Store`."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder, self.url = folder, url or str(folder)

    def read(self, path: str) -> Iterator[bytes] | None:
        """See `Store.read`."""
        try:
            stream = open(self.folder / path, "rb")  # noqa: SIM115 - closed where the pieces end
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed(error) from None
        return _file_pieces(stream.fileno(), stream)

    def create(self, path: str, content: Path | bytes) -> bool:
        """See `Store.create`."""
        final = self.folder / path
        if final.exists():
            return False
        working = final.with_name(f"{WORKING}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            make_folder(final.parent)
            try:
                _write(working, content, os.O_EXCL)
                return _link(working, final)
            finally:
                remove_quietly(working)
        except OSError as error:
            raise _failed(error) from None

    def list(self, prefix: str) -> Iterator[Found]:
        """See `Store.list`."""
        folder, _, begins = prefix.rpartition("/")
        try:
            with os.scandir(self.folder / folder) as entries:
                for entry in entries:
                    if entry.name.startswith(begins) and entry.is_file(follow_symlinks=False):
                        facts = entry.stat(follow_symlinks=False)
                        yield Found(f"{folder}/{entry.name}", facts.st_size, max(time.time() - facts.st_mtime, 0.0))
        except FileNotFoundError:
            return
        except OSError as error:
            raise _failed(error) from None

    def remove(self, path: str) -> None:
        """See `Store.remove`."""
        try:
            (self.folder / path).unlink(missing_ok=True)
        except OSError as error:
            raise _failed(error) from None


def _file_pieces(handle: int, stream: object) -> Iterator[bytes]:
    """`stream` is held, for it closes its handle with its own end."""
    while True:
        try:
            piece = os.read(handle, PIECE_BYTES)
        except OSError as error:
            raise _failed(error) from None
        if not piece:
            return
        yield piece


def _write(path: Path, content: Path | bytes, flag: int) -> None:
    """With the rights that the umask gives, for others are to read it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o666)
    with os.fdopen(handle, "wb") as stream:
        if isinstance(content, bytes):
            stream.write(content)
        else:
            with open(content, "rb") as source:
                while piece := source.read(PIECE_BYTES):
                    stream.write(piece)
        stream.flush()
        os.fsync(stream.fileno())


def _link(working: Path, final: Path) -> bool:
    """Give a whole file its name in one step; where the file system knows no links, create it under that name.

    A reader of the latter may see a part of it, which its hash tells.
    """
    try:
        os.link(working, final)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        try:
            _write(final, working, os.O_EXCL)
        except FileExistsError:
            return False
        except OSError:
            with suppress(OSError):
                final.unlink(missing_ok=True)
            raise
    sync_folder(final.parent)
    return True


def _failed(error: OSError) -> StoreError:
    kinds: dict[int | None, Kind] = {
        errno.ENOSPC: "full",
        errno.EDQUOT: "full",
        errno.EFBIG: "full",
        errno.EROFS: "read-only",
        errno.EACCES: "read-only",
        errno.EPERM: "read-only",
    }
    return StoreError(kinds.get(error.errno, "unreachable"), (error.strerror or str(error)).lower())


CONNECT_S = 5
STALL_S = 20
"""Longest time without a byte; `transfer.do_all` limits the whole."""
RETRIES = 2
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
        return _stream_pieces(found)

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


def _stream_pieces(found: Any) -> Iterator[bytes]:
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
