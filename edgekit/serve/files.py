"""A request's body that is a file: its content says what it is, and the bundle's own input path reads it.

A table and a text look alike, so there the model decides: one that takes texts takes whatever is no array for a text.

The readers of `edgekit.runner` take paths. The bytes lie in memory (memfd), so no disk can be full, and nothing that a
client calls its file becomes a name here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping

from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import Manifest
from edgekit.runner.errors import InputError
from edgekit.runner.inputs.windows import Sample
from edgekit.serve.errors import RequestError
from edgekit.serve.request import Body

ZIPPED = (b"PK\x03\x04", b"PK\x05\x06")
"""What an `.npz` begins with; the second is empty."""
HEAD_BYTES = 4096
MOST_SAMPLES = 1024
"""Windows of one recording, or rows of one table."""


def samples(body: Body, manifest: Manifest, members: Mapping[str, bytes] = inputs.NO_MEMBERS) -> list[Sample]:
    """The raw samples of a file's bytes; RequestError (400, 413 or 415) says what was got and what is taken.

    `members` are the bundle's: a text needs its vocabulary. A model with states begins with zeros at each request, so
    it takes one window alone.
    """
    raw = manifest.raw
    readers = inputs.readers(raw)
    taken = [suffix for suffix in inputs.suffixes(raw) if readers[suffix] != "text_table"]  # to it, that is a text
    known = {readers[suffix] for suffix in taken}
    head = bytes(body[:HEAD_BYTES])
    reader = kind(head)
    if "text" in known and reader != "array" and (reader in (None, "table") or _is_utf8(body)):
        reader = "text" if body else None
    if "tensors" in known and reader is None and head[:4] in ZIPPED:
        reader = "tensors"
    if reader is None or reader not in known:
        got = f"a {reader}" if reader else "no file that is known" if body else "nothing"
        raise RequestError(415, f"body: got {got}; this model takes {', '.join(taken)}")
    descriptor = os.memfd_create("body")
    path = f"/proc/self/fd/{descriptor}"
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(body)
        os.lseek(descriptor, 0, os.SEEK_SET)
        found: list[Sample] = []
        more = (members,) if reader == "text" else ()
        for sample in importlib.import_module(f"{inputs.__name__}.{reader}").samples(path, raw, False, *more):
            if manifest.states and found:
                raise RequestError(400, "body: several windows, and the model has states; use edgerun predict")
            if len(found) == MOST_SAMPLES:
                raise RequestError(413, f"body: more than {MOST_SAMPLES} samples; send the file in parts")
            found.append(sample)
        return found
    except InputError as error:
        raise RequestError(400, str(error).replace(path, "body")) from None
    finally:
        os.close(descriptor)


def kind(head: bytes) -> str | None:
    """Which reader of `inputs` a file is for, by its first bytes; None where it is for none."""
    if head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")):
        return "picture"
    if head[:4] == b"RIFF":
        return {b"WEBP": "picture", b"WAVE": "wav"}.get(head[8:12])
    if head.startswith(b"\x93NUMPY"):
        return "array"
    if head[:4] in (b"RF64", b"RIFX"):
        return "wav"
    is_text = bool(head) and not any(byte < 9 or 13 < byte < 32 for byte in head)
    return "table" if is_text and b"," in head else None


def _is_utf8(body: Body) -> bool:
    """Whether a body that begins as a picture or a sound does is a text all the same, such as "RIFX is a format"."""
    try:
        str(body, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
