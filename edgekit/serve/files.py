"""Files as request bodies: the content decides the file type, and the bundle's own input path reads it.

Tables and texts look alike, so the kind of the model decides between them. A model for texts takes a body that looks
like a table as a text. It also takes a body that begins like a picture or a sound as a text if the whole body is valid
UTF-8, but never an array.

The readers of `edgekit.runner` expect paths, so the body is written to a file in memory (memfd). No disk can therefore
run full, and the file name that a client sends is never used.
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

ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")
"""The first bytes of an `.npz` file with arrays, and those of an empty `.npz` file."""
HEAD_BYTES = 4096
MAX_SAMPLES = 1024
"""The largest number of windows in a recording, or of rows in a table."""


def samples(body: Body, manifest: Manifest, members: Mapping[str, bytes] = inputs.NO_MEMBERS) -> list[Sample]:
    """Read the raw samples from the bytes of a file.

    `members` are the files of the bundle, because texts need its vocabulary. A model with recurrent state starts from
    zeros at each request and therefore accepts only a single window.

    Raises RequestError (400, 413 or 415), whose message says what was received and what was expected.
    """
    raw = manifest.raw
    readers = inputs.readers(raw)
    # a table that is sent to a model for texts is read as one text
    suffixes = [suffix for suffix in inputs.suffixes(raw) if readers[suffix] != "text_table"]
    accepted_readers = {readers[suffix] for suffix in suffixes}
    head = bytes(body[:HEAD_BYTES])
    reader = kind(head)
    if "text" in accepted_readers and reader != "array" and (reader in (None, "table") or _is_utf8(body)):
        reader = "text" if body else None
    if "tensors" in accepted_readers and reader is None and head[:4] in ZIP_MAGIC:
        reader = "tensors"
    if reader is None or reader not in accepted_readers:
        got = f"a {reader}" if reader else "a file of an unknown kind" if body else "nothing"
        raise RequestError(415, f"body: got {got}; this model takes {', '.join(suffixes)}")
    descriptor = os.memfd_create("body")
    path = f"/proc/self/fd/{descriptor}"
    try:
        with open(descriptor, "wb", closefd=False) as stream:
            stream.write(body)
        os.lseek(descriptor, 0, os.SEEK_SET)
        decoded: list[Sample] = []
        extra_arguments = (members,) if reader == "text" else ()
        for sample in importlib.import_module(f"{inputs.__name__}.{reader}").samples(
            path, raw, False, *extra_arguments
        ):
            if manifest.states and decoded:
                raise RequestError(400, "body: several windows, but a model with states takes one; use edgerun predict")
            if len(decoded) == MAX_SAMPLES:
                raise RequestError(413, f"body: more than {MAX_SAMPLES} samples; send the file in parts")
            decoded.append(sample)
        return decoded
    except InputError as error:
        raise RequestError(400, str(error).replace(path, "body")) from None
    finally:
        os.close(descriptor)


def kind(head: bytes) -> str | None:
    """Return which reader of `inputs` a file needs, by its first bytes; None if no reader fits."""
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
    """Return whether a body is a text although it begins like a picture or audio, such as "RIFX is a format"."""
    try:
        str(body, "utf-8")
    except UnicodeDecodeError:
        return False
    return True
