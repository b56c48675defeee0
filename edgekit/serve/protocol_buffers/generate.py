"""Write descriptors.py from inference.proto. Run this file with a Python that has the package grpcio-tools.

That package brings protoc and its own version of protobuf, so install it in a separate environment.
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


def compile_descriptors() -> bytes:
    """Compile inference.proto with protoc, and return the serialized FileDescriptorProto."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "set"
        arguments = ["protoc", f"-I{FOLDER}", f"--descriptor_set_out={output}", SOURCE.name]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"{SOURCE}: protoc rejected it; the reason is above")
        [file] = FileDescriptorSet.FromString(output.read_bytes()).file
        return file.SerializeToString(deterministic=True)


def stored_descriptors() -> bytes:
    """Return the descriptors that descriptors.py contains."""
    from edgekit.serve.protocol_buffers.descriptors import DESCRIPTORS

    return zlib.decompress(base64.b85decode(DESCRIPTORS))


def source_sha256() -> str:
    """Return the SHA-256 of inference.proto, in hex."""
    return hashlib.sha256(SOURCE.read_bytes()).hexdigest()


def module_text(descriptors: bytes) -> str:
    """Return the source text of descriptors.py."""
    encoded = base64.b85encode(zlib.compress(descriptors, 9)).decode()
    lines = [encoded[first : first + WIDTH] for first in range(0, len(encoded), WIDTH)]
    quoted = "\n".join(f'    r"{line}"' for line in lines)
    return (
        '"""Generated from inference.proto by generate.py: its descriptors, deflated, and that file\'s SHA-256."""\n\n'
        f'SOURCE_SHA256 = "{source_sha256()}"\nDESCRIPTORS = (\n{quoted}\n)\n'
    )


if __name__ == "__main__":
    TARGET.write_text(module_text(compile_descriptors()), encoding="utf-8")
