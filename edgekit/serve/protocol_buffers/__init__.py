"""The messages of `inference.proto` as classes, in a pool of their own.

Client libraries of the protocol bring messages of the same names. In protobuf's default pool, the second definition of
a name would be an error. Descriptors are data and work with every protobuf from 4.22 on, unlike generated code.
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
    """Return the class of one message. Raises KeyError for a name that the protocol does not have."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"inference.{name}"))
