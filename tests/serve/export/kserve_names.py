"""Run in build/kubernetes: every key of an InferenceService, held against the models of KServe's own SDK.

KServe's resources are no part of Kubernetes, so `kubernetes-validate` does not know them. Prints the keys that the SDK
does not know and the values that it refuses, one a line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kserve
import yaml
from kubernetes import client

PLAIN = {"str": str, "int": int, "bool": bool, "object": object}


def faults(value: Any, kind: str, where: str) -> Iterator[str]:
    """What does not fit, by its place."""
    if kind in PLAIN:
        if not isinstance(value, PLAIN[kind]):
            yield f"{where}: {value!r} is no {kind}"
    elif match := re.fullmatch(r"list\[(.*)\]", kind):
        for number, each in enumerate(value):
            yield from faults(each, match[1], f"{where}[{number}]")
    elif match := re.fullmatch(r"dict\((.*), (.*)\)", kind):
        for key, each in value.items():
            yield from faults(each, match[2], f"{where}.{key}")
    else:
        model = getattr(kserve.models, kind, None) or getattr(kserve, kind, None) or getattr(client, kind)
        types = {model.attribute_map[name]: each for name, each in model.openapi_types.items()}
        for key, each in value.items():
            if key not in types:
                yield f"{where}.{key}: {kind} has no such key"
            else:
                yield from faults(each, types[key], f"{where}.{key}")


print("\n".join(faults(yaml.safe_load(Path(sys.argv[1]).read_text()), "V1beta1InferenceService", "")), end="")
