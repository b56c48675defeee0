"""Writes descriptors.py from inference.proto. Run this file with a Python that has the package grpcio-tools.

That package brings protoc and a protobuf of its own, so it belongs in an environment of its own.
"""

from __future__ import annotations

import base64
import hashlib
import tempfile
import zlib
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
SOURCE, TARGET = FOLDER / "inference.proto", FOLDER / "descriptors.py"
WIDTH = 112


def compiled() -> bytes:
    """The source as protoc understands it: a FileDescriptorProto."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set"
        arguments = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={output}", SOURCE.name]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"{SOURCE}: protoc refused it; it says why above")
        [file] = FileDescriptorSet.FromString(output.read_bytes()).file
        return file.SerializeToString(deterministic=True)


def kept() -> bytes:
    """What was made last."""
    from edgekit.serve.protocol_buffers.descriptors import DESCRIPTORS

    return zlib.decompress(base64.b85decode(DESCRIPTORS))


def source_sha256() -> str:
    """Of the file that the descriptors were made from."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def text(descriptors: bytes) -> str:
    """The module that holds them."""
    encoded = base64.b85encode(zlib.compress(descriptors, 9)).decode()
    lines = [encoded[first : first + WIDTH] for first in range(0, len(encoded), WIDTH)]
    quoted = "\n".join(f'    r"{line}"' for line in lines)
    return (
        '"""Made from inference.proto by generate.py: its descriptors, deflated, and that file\'s sha256."""\n\n'
        f'SOURCE_SHA256 = "{source_sha256()}"\nDESCRIPTORS = (\n{quoted}\n)\n'
    )


if __name__ == "__main__":
    TARGET.write_text(text(compiled()), encoding="utf-8")
