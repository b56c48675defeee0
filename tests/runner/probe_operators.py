"""Measures what `edgekit/runner/operators` says of releases: run it with the Python that has the interpreter.

    python tests/runner/probe_operators.py tflite ai_edge_litert.interpreter
    python tests/runner/probe_operators.py tflite tflite_runtime.interpreter
    python tests/runner/probe_operators.py tflite tensorflow
    python tests/runner/probe_operators.py onnx onnxruntime

Prints one line of JSON: for tflite the highest version of every builtin operator, by number, 0 where it has none;
for onnx the highest operator set and the highest version of the file format.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import handmade

MOST_VERSIONS = 40
MOST_OPERATORS = 260
REFUSED = ("Didn't find op for builtin opcode", "Op builtin_code out of range", "has no custom_code")


def accepted(interpreter: Any, code: int, version: int) -> bool:
    """Whether the interpreter has the operator at this version; other faults than the operator's are real errors."""
    try:
        interpreter(model_content=handmade.tflite(code, version))
    except (ValueError, RuntimeError) as error:
        if not any(text in str(error) for text in REFUSED):
            raise
        return False
    return True


def tflite(package: str) -> list[int]:
    interpreter = getattr(importlib.import_module(package), "lite", importlib.import_module(package)).Interpreter
    found = []
    for code in range(MOST_OPERATORS):
        versions = [each for each in range(1, MOST_VERSIONS) if accepted(interpreter, code, each)]
        found.append(max(versions, default=0))
    while found and not found[-1]:
        found.pop()
    return found


def onnx(package: str) -> dict[str, int]:
    runtime = importlib.import_module(package)
    runtime.set_default_logger_severity(4)

    def opens(opset: int, ir_version: int) -> bool:
        try:
            runtime.InferenceSession(handmade.onnx(opset, ir_version), providers=["CPUExecutionProvider"])
        except Exception as error:  # its errors share no base class
            if not any(word in str(error) for word in ("opset", "Opset", "IR version")):
                raise
            return False
        return True

    return {
        "opset": max(each for each in range(7, 50) if opens(each, 8)),
        "ir": max(each for each in range(3, 40) if opens(13, each)),
    }


if __name__ == "__main__":
    print(json.dumps({"tflite": tflite, "onnx": onnx}[sys.argv[1]](sys.argv[2])))
