"""The zip format of a bundle in its only valid form: stored regular files, timestamps of 1980, no extra fields.

Any zip tool can open it. This reader accepts no other form, so nothing can hide between the members, and a device needs
neither `zipfile` nor OpenSSL (10 ms and 5 MB) to read a bundle. The fields are those of APPNOTE.TXT 6.3.4, sections
4.3.7, 4.3.12 and 4.3.16.
"""

from __future__ import annotations

from binascii import crc32
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import IO, Any

LOCAL = Struct("<4s5H3L2H")
CENTRAL = Struct("<4s6H3L5H2L")
END = Struct("<4s4H2LH")
VERSION = 20
UNIX = 3 << 8
DATE = 1 << 5 | 1  # 1 January 1980
REGULAR_FILE = 0o100644 << 16
MANIFEST = "manifest.json"
"""The first member, which lists the others."""
LARGEST_MANIFEST_BYTES = 4 * 2**20
MAX_MEMBERS = 2**16 - 1
LARGEST_BYTES = 2**31 - 1


class BadArchive(ValueError):
    """The archive is not byte for byte what `archive_parts` would have written."""


def archive_parts(members: Mapping[str, bytes]) -> Iterator[bytes]:
    """Yield the archive of `members`, in their order, piece by piece."""
    entries: list[bytes] = []
    offset = 0
    for name, data in members.items():
        checksum = crc32(data)
        header = _local_header(name, len(data), checksum)
        entries.append(_central_header(name, len(data), checksum, offset))
        offset += len(header) + len(data)
        yield header
        yield data
    directory = b"".join(entries)
    yield directory + END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(directory), offset, 0)


def read(stream: IO[bytes]) -> dict[str, bytes]:
    """Return the members in their order.

    Raises BadArchive at the first byte that `archive_parts` would not have written.
    """
    size = stream.seek(0, 2)
    stream.seek(0)
    if size > LARGEST_BYTES:
        raise BadArchive("larger than 2 GB")
    members: dict[str, bytes] = {}
    entries: list[bytes] = []
    while True:
        offset = stream.tell()
        start = stream.read(LOCAL.size)
        if start[:4] != b"PK\3\4":
            break
        if len(start) < LOCAL.size:
            raise BadArchive("cut short")
        name, data = _read_member(stream, LOCAL.unpack(start), size)
        if name in members or len(members) == MAX_MEMBERS:
            raise BadArchive(f"{name}: occurs twice, or is one member too many")
        checksum = crc32(data)
        if start + name.encode() != _local_header(name, len(data), checksum):
            raise BadArchive(f"{name}: unexpected header")
        entries.append(_central_header(name, len(data), checksum, offset))
        members[name] = data
    directory = b"".join(entries)
    end = END.pack(b"PK\5\6", 0, 0, len(members), len(members), len(directory), offset, 0)
    if start + stream.read() != directory + end:
        raise BadArchive("unexpected directory")
    return members


def _read_member(stream: IO[bytes], header: tuple[Any, ...], size: int) -> tuple[str, bytes]:
    data_bytes, name_bytes = header[8], header[9]
    if stream.tell() + name_bytes + data_bytes > size:
        raise BadArchive("cut short")
    try:
        name = stream.read(name_bytes).decode("ascii")
    except UnicodeDecodeError:
        raise BadArchive("a name that is not ASCII") from None
    if not name.isprintable():
        raise BadArchive("a name with control characters")
    return name, stream.read(data_bytes)


def _local_header(name: str, size: int, checksum: int) -> bytes:
    text = name.encode("ascii")
    return LOCAL.pack(b"PK\3\4", VERSION, 0, 0, 0, DATE, checksum, size, size, len(text), 0) + text


def _central_header(name: str, size: int, checksum: int, offset: int) -> bytes:
    text = name.encode("ascii")
    made_by, needed = UNIX | VERSION, VERSION
    fields = (made_by, needed, 0, 0, 0, DATE, checksum, size, size, len(text), 0, 0, 0, 0, REGULAR_FILE, offset)
    return CENTRAL.pack(b"PK\1\2", *fields) + text
