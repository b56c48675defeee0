"""Zip archives, field by field, so that any of them can lie; and mutations of a good archive, seeded.

Written from APPNOTE.TXT, sections 4.3.7 to 4.3.16, independently of `edgekit.runner.bundle.archive`.
"""

from __future__ import annotations

import bz2
import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

LOCAL = ("needed", "flags", "method", "time", "date", "crc", "packed", "size", "name_bytes", "extra_bytes")
CENTRAL = (
    "made", *LOCAL, "comment_bytes", "disk", "internal", "external", "offset",
)  # fmt: skip
END = ("disk", "first_disk", "here", "total", "directory_bytes", "directory", "comment_bytes")
WIDTHS = {"crc": "I", "packed": "I", "size": "I", "external": "I", "offset": "I", "directory": "I"}
BASE = {"made": 3 << 8 | 20, "needed": 20, "date": 33, "external": 0o100644 << 16}


@dataclass
class Entry:
    """A member. `local` and `central` replace fields of its two headers; `after` follows its data."""

    name: bytes
    data: bytes
    local: dict[str, int] = field(default_factory=dict)
    central: dict[str, int] = field(default_factory=dict)
    local_name: bytes | None = None
    local_extra: bytes = b""
    extra: bytes = b""
    comment: bytes = b""
    before: bytes = b""
    after: bytes = b""
    listed: bool = True
    present: bool = True

    def both(self, **fields: int) -> Entry:
        """The same lie in both headers."""
        return replace(self, local={**self.local, **fields}, central={**self.central, **fields})


def record(signature: bytes, names: tuple[str, ...], values: dict[str, int]) -> bytes:
    """A header; values are cut to the width of their field."""
    out = signature
    for name in names:
        wide = WIDTHS.get(name, "I" if name == "directory_bytes" else "H")
        out += struct.pack(f"<{wide}", values.get(name, 0) & (0xFFFFFFFF if wide == "I" else 0xFFFF))
    return out


def pack(entries: list[Entry], start: bytes = b"", before_end: bytes = b"", comment: bytes = b"", **end: int) -> bytes:
    """The archive, its offsets and lengths right but for what the entries and `end` say."""
    out, directory, listed = start, b"", 0
    for entry in entries:
        facts = {**BASE, "crc": zlib.crc32(entry.data), "packed": len(entry.data), "size": len(entry.data)}
        out += entry.before
        offset = len(out)
        if entry.present:
            name = entry.name if entry.local_name is None else entry.local_name
            values = {**facts, "name_bytes": len(name), "extra_bytes": len(entry.local_extra), **entry.local}
            out += record(b"PK\3\4", LOCAL, values) + name + entry.local_extra + entry.data + entry.after
        if entry.listed:
            values = {**facts, "name_bytes": len(entry.name), "extra_bytes": len(entry.extra), "offset": offset}
            values.update({"comment_bytes": len(entry.comment), **entry.central})
            directory += record(b"PK\1\2", CENTRAL, values) + entry.name + entry.extra + entry.comment
            listed += 1
    values = {"here": listed, "total": listed, "directory_bytes": len(directory), "directory": len(out)}
    values.update({"comment_bytes": len(comment), **end})
    return out + directory + before_end + record(b"PK\5\6", END, values) + comment


def unpack(data: bytes) -> list[Entry]:
    """The entries of a good archive."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [Entry(each.filename.encode(), archive.read(each)) for each in archive.infolist()]


# --- mutations: each takes a generator and the good archive, and gives another, perhaps the same ---


def flip(rng: random.Random, good: bytes) -> bytes:
    out = bytearray(good)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        out[rng.randrange(len(out))] ^= rng.randrange(1, 256)
    return bytes(out)


def cut(rng: random.Random, good: bytes) -> bytes:
    start = rng.randrange(len(good))
    end = rng.randrange(start, min(len(good), start + rng.choice((1, 4, 30, 10**6))) + 1)
    return rng.choice((good[:start], good[start:], good[:start] + good[end:]))


def insert(rng: random.Random, good: bytes) -> bytes:
    place = rng.randrange(len(good) + 1)
    more = rng.choice((rng.randbytes(rng.randint(1, 40)), bytes(rng.randint(1, 64)), b"PK\3\4", b"PK\1\2", b"PK\5\6"))
    return good[:place] + more + good[place:]


def move(rng: random.Random, good: bytes) -> bytes:
    """Two neighbouring blocks change places, or one is repeated, or written over another."""
    a, b, c = sorted(rng.randrange(len(good) + 1) for _ in range(3))
    one, two = good[a:b], good[b:c]
    changed = rng.choice((two + one, one + one + two, one + one, two[: len(one)] + one[len(two) :] + two))
    return good[:a] + changed + good[c:]


def interesting(rng: random.Random) -> int:
    edge = rng.choice((0, 1, 2, 8, 14, 20, 45, 63, 2**8, 2**15, 2**16, 2**24, 2**31, 2**32))
    return max(0, edge + rng.choice((-1, 0, 0, 1))) if rng.random() < 0.7 else rng.getrandbits(32)


def header(rng: random.Random, good: bytes) -> bytes:
    """A field of the local header, of the directory, or of both says something else; the rest is repaired."""
    entries = unpack(good)
    for _ in range(rng.choice((1, 1, 1, 2))):
        place, value = rng.randrange(len(entries)), interesting(rng)
        entry = entries[place]
        where = rng.choice(("local", "central", "both"))
        name = rng.choice(LOCAL if where != "central" else CENTRAL)
        entries[place] = (
            entry.both(**{name: value})
            if where == "both"
            else replace(entry, **{where: {**getattr(entry, where), name: value}})
        )
    return pack(entries)


def end_record(rng: random.Random, good: bytes) -> bytes:
    return pack(unpack(good), **{rng.choice(END): interesting(rng) for _ in range(rng.choice((1, 1, 2)))})


def surround(rng: random.Random, good: bytes) -> bytes:
    """Something before or after, with offsets that know of it and without; other archives too."""
    more = rng.choice((b"#!/bin/sh\nexit\n", b"\0", rng.randbytes(rng.randint(1, 99)), good, pack([]), b"MZ\x90\0"))
    return rng.choice((more + good, good + more, pack(unpack(good), start=more), pack(unpack(good), before_end=more)))


NAMES = (
    b"/etc/cron.d/x", b"../x", b"a/../../x", b"..", b".", b"", b"/", b"a//b", b"C:/x", b"C:\\x", b"..\\x", b".hidden",
    b"a/.b", b"folder/", b"a\0b", b"a b", "ä".encode(), b"x" * 300, b"MODEL.onnx", b"manifest.json", b"con", b"~/x",
    b"\xff\xfe", b"model.onnx ", b"model.onnx\n", b"-rf", b"__main__.py",
)  # fmt: skip


def rename(rng: random.Random, good: bytes) -> bytes:
    entries = unpack(good)
    place, name = rng.randrange(len(entries)), rng.choice(NAMES)
    where = rng.choice(("both", "local", "central", "swap"))
    if where == "swap":
        other = rng.randrange(len(entries))
        entries[place].name, entries[other].name = entries[other].name, entries[place].name
    elif where == "local":
        entries[place].local_name = name
    else:
        entries[place].local_name = entries[place].name if where == "central" else None
        entries[place].name = name
    return pack(entries)


def attributes(rng: random.Random, good: bytes) -> bytes:
    """A link, a folder, a device, a set-uid program; or what another system would note."""
    entries = unpack(good)
    mode = rng.choice((0o120777, 0o040755, 0o060644, 0o020644, 0o010644, 0o104755, 0o100755, 0o100600, 0))
    place = rng.randrange(len(entries))
    entries[place].central = {"external": mode << 16 | rng.choice((0, 0x10, 0x20)), "made": rng.choice((0, 3, 10)) << 8}
    return pack(entries)


def intrude(rng: random.Random, good: bytes) -> bytes:
    """One more member: unlisted, hidden, a duplicate, or an entry that points into another's data."""
    entries = unpack(good)
    name = rng.choice((*NAMES, *(entry.name for entry in entries)))
    twin = rng.choice(entries).data
    more = Entry(name, rng.choice((b"intruder", twin)), listed=rng.random() < 0.7, present=rng.random() < 0.8)
    if not more.present:
        more.central = {"offset": rng.randrange(len(good))}
    counted = len(entries) if rng.random() < 0.3 else len(entries) + more.listed
    entries.insert(rng.randint(0, len(entries)), more)
    return pack(entries, here=counted, total=counted)


def leave_out(rng: random.Random, good: bytes) -> bytes:
    entries = unpack(good)
    entry = rng.choice(entries)
    if rng.random() < 0.5:
        entries.remove(entry)
    else:
        entry.listed, entry.present = rng.choice(((False, True), (True, False)))
    return pack(entries)


def reorder(rng: random.Random, good: bytes) -> bytes:
    entries = unpack(good)
    first = entries.pop(0) if rng.random() < 0.7 else None
    rng.shuffle(entries)
    return pack(entries if first is None else [first, *entries])


def wide(rng: random.Random, good: bytes) -> bytes:
    """Zip64: sizes in extra fields, and the records of APPNOTE 4.3.14 and 4.3.15 before the end."""
    entries = unpack(good)
    place = rng.randrange(len(entries))
    entry, size = entries[place], rng.choice((len(entries[place].data), 2**32, 2**40, 2**63))
    extra = struct.pack("<HHQQ", 1, 16, size, size)
    fields = {"size": 2**32 - 1, "packed": 2**32 - 1, "needed": 45}
    if rng.random() < 0.7:
        entries[place] = replace(entry.both(**fields), local_extra=extra, extra=extra)
    records = b""
    if rng.random() < 0.7:
        count = rng.choice((len(entries), 2**33))
        end = struct.pack("<4sQHHLLQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, rng.randrange(2**33), 0)
        records = end + struct.pack("<4sLQL", b"PK\6\7", 0, rng.randrange(len(good)), 1)
    return pack(entries, before_end=records, total=rng.choice((len(entries), 2**16 - 1)))


def huge(rng: random.Random, good: bytes) -> bytes:
    """Sizes that are far more than there is, up to 4 GB."""
    entries = unpack(good)
    place, size = rng.randrange(len(entries)), rng.choice((2**20, 2**28, 2**31 - 1, 2**32 - 1))
    fields = {name: size for name in rng.choice((("size",), ("packed",), ("size", "packed")))}
    entries[place] = entries[place].both(**fields)
    return pack(entries)


def compress(rng: random.Random, good: bytes) -> bytes:
    """Packed by deflate or bzip2, with the right sizes; some of them bombs."""
    entries = unpack(good)
    for place in rng.sample(range(len(entries)), rng.randint(1, len(entries))):
        entry = entries[place]
        data = entry.data if rng.random() < 0.8 else bytes(rng.choice((10**4, 10**6)))
        squeeze = zlib.compressobj(9, zlib.DEFLATED, -15)
        method, packed = rng.choice(
            ((8, squeeze.compress(data) + squeeze.flush()), (12, bz2.compress(data)), (99, data))
        )
        entries[place] = replace(entry, data=packed).both(method=method, size=len(data), crc=zlib.crc32(data))
    return pack(entries)


def comment(rng: random.Random, good: bytes) -> bytes:
    entries, words = unpack(good), rng.randbytes(rng.randint(1, 50))
    where = rng.choice(("archive", "member", "extra", "local", "time", "gap"))
    entry = rng.choice(entries)
    stamp = struct.pack("<HHBL", 0x5455, 5, 1, rng.getrandbits(32))  # what Info-ZIP notes of the time
    if where == "archive":
        return pack(entries, comment=words)
    if where == "member":
        entry.comment = words
    elif where == "extra":
        entry.extra = stamp
    elif where == "local":
        entry.local_extra = stamp
    elif where == "gap":
        entry.before = words
    else:
        entry.local = entry.central = {"time": rng.getrandbits(16), "date": rng.getrandbits(16)}
    return pack(entries)


def descriptor(rng: random.Random, good: bytes) -> bytes:
    """Sizes and checksum after the data, as a program writes that cannot go back."""
    entries = unpack(good)
    place = rng.randrange(len(entries))
    entry = entries[place]
    size, crc = len(entry.data), zlib.crc32(entry.data)
    after = rng.choice((b"PK\7\10", b"")) + struct.pack("<LLL", crc, size, size)
    lies = rng.choice(({"crc": 0, "packed": 0, "size": 0}, {}))
    entries[place] = replace(entry, local={"flags": 8, **lies}, central={"flags": 8}, after=after)
    return pack(entries)


def disks(rng: random.Random, good: bytes) -> bytes:
    entries = unpack(good)
    rng.choice(entries).central = {"disk": rng.choice((0, 1, 2**16 - 1))}
    return pack(entries, disk=rng.choice((0, 1, 7)), first_disk=rng.choice((0, 1, 2**16 - 1)))


def content(rng: random.Random, good: bytes) -> bytes:
    """Another content with the right checksums, which the manifest can tell, unless it is its own."""
    entries = unpack(good)
    entry = rng.choice(entries[1:] or entries)
    entry.data = rng.choice((b"", bytes(len(entry.data)), entry.data + b"\n", flip(rng, entry.data or b"\0")))
    return pack(entries)


def flags(rng: random.Random, good: bytes) -> bytes:
    """Encrypted, patched, UTF-8 names, strong encryption, masked headers."""
    entries = unpack(good)
    place = rng.randrange(len(entries))
    entries[place] = entries[place].both(flags=1 << rng.randrange(16))
    return pack(entries)


def twice(rng: random.Random, good: bytes) -> bytes:
    """A mutation of a mutation, as far as the first can still be read."""
    first = rng.choice(STRUCTURAL)(rng, good)
    return rng.choice((flip, cut, insert, move))(rng, first)


Mutation = Callable[[random.Random, bytes], bytes]
STRUCTURAL: list[Mutation] = [
    header, end_record, surround, rename, attributes, intrude, leave_out, reorder, wide, huge, compress, comment,
    descriptor, disks, content, flags,
]  # fmt: skip
MUTATIONS: dict[str, Any] = {each.__name__: each for each in (flip, cut, insert, move, *STRUCTURAL, twice)}
