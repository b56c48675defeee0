"""The facts that must be the same on a worker as on this machine: code, versions, Python and instruction sets.

A different machine would compute other bits or other latencies under the same key.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

from edgekit import __version__
from edgekit.core.cache_key import installed_versions
from edgekit.core.hashing import digest, sha256_file
from edgekit.core.source_code import ROOT
from edgekit.runner import cpu

LIBRARIES = (
    "ai-edge-litert",
    "ai-edge-quantizer",
    "keras",
    "litert-converter",
    "litert-torch",
    "matplotlib",
    "nncf",
    "numpy",
    "onnx",
    "onnx-graphsurgeon",
    "onnx2tf",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "safetensors",
    "scikit-learn",
    "sng4onnx",
    "tensorflow",
    "tf-keras",
    "tf2onnx",
    "torch",
    "torch-pruning",
)
"""The distributions that affect a result: those in the key of any stage, and those that read data sets."""
MAX_LISTED = 3
NAMES = {
    "edgekit": "edgekit",
    "code": "edgekit's code",
    "python": "Python",
    "system": "the system",
    "machine": "the architecture",
    "instructions": "instruction sets",
}


def local_facts(probe: str | None = None) -> dict[str, Any]:
    """Return the facts about the machine that runs this process.

    `probe` is the path of a newly written file, whose content is one of the facts. It shows whether this machine sees
    the folder that the file is in.
    """
    return {
        "edgekit": __version__,
        "code": code_digest()[:12],
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "instructions": " ".join(cpu.instruction_sets()) or "unknown",
        "processor": cpu.name() or platform.processor() or "unknown",
        "libraries": installed_versions(LIBRARIES),
        "probe": _read_probe(probe),
    }


def differences(worker: dict[str, Any], local: dict[str, Any]) -> list[str]:
    """Return how a worker differs from this machine, each difference in a few words with both values.

    The list is empty if the worker may be used.
    """
    differing = [
        _describe_difference(label, worker.get(name), local[name])
        for name, label in NAMES.items()
        if worker.get(name) != local[name]
    ]
    worker_libraries = worker.get("libraries") or {}
    differing += [
        _describe_difference(name, worker_libraries.get(name), version)
        for name, version in local["libraries"].items()
        if worker_libraries.get(name) != version
    ]
    if worker.get("probe") != local["probe"]:
        differing.append("it cannot read the folder that the jobs write to")
    return differing


def has_same_processor(worker: dict[str, Any], local: dict[str, Any]) -> bool:
    """Whether a worker may measure, because it has the same processor as this machine.

    Other workers compute the same bits, but have other latencies.
    """
    return bool(worker.get("processor") == local["processor"])


def summarize(differing: list[str]) -> str:
    """Return the first differences and the number of further ones."""
    rest = f"; {len(differing) - MAX_LISTED} more" if len(differing) > MAX_LISTED else ""
    return "; ".join(differing[:MAX_LISTED]) + rest


@cache
def code_digest() -> str:
    """Return the hex digest of edgekit's own source, as this process reads it from disk."""
    names = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    return digest([[name.as_posix(), sha256_file(ROOT / name)] for name in names])


def _describe_difference(label: str, worker_value: Any, local_value: Any) -> str:
    if label == NAMES["instructions"] and worker_value and local_value:
        missing = [each for each in local_value.split() if each not in worker_value.split()]
        additional = [each for each in worker_value.split() if each not in local_value.split()]
        parts = [f"without {' '.join(missing)}"] * bool(missing) + [f"with {' '.join(additional)} in addition"] * bool(
            additional
        )
        return f"{label} {', '.join(parts)}"
    return f"{label} {worker_value or 'missing'}, here {local_value or 'missing'}"


def _read_probe(probe: str | None) -> str | None:
    if probe is None:
        return None
    try:
        return Path(probe).read_text(encoding="utf-8")
    except OSError:
        return None
