"""The messages of `inference.proto` as classes, in a pool of their own.

Clients of the protocol bring messages of the same names. In protobuf's default pool the second of them is an error.
Descriptors are data, so they suit every protobuf from 4.22 on, which generated code does not.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

from google.protobuf import descriptor_pool, message_factory

from edgekit.serve.protocol_buffers.descriptors import DESCRIPTORS

SERVICE = "inference.GRPCInferenceService"
_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(zlib.decompress(base64.b85decode(DESCRIPTORS)))


def message(name: str) -> Any:
    """The class of one message; KeyError for a name that the protocol has not."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"inference.{name}"))
