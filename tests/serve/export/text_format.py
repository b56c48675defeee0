"""Run in build/triton: a `config.pbtxt`, read by Triton's own protobuf, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

config = text_format.Parse(Path(sys.argv[1]).read_text(encoding="utf-8"), model_config_pb2.ModelConfig())
print(json.dumps(json_format.MessageToDict(config, preserving_proto_field_name=True)))
