"""What a machine that works has to have in common with the one that asks: code, versions, Python, instruction sets.

One that differs would compute other bits, or other latencies, under the same key.
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
"""The distributions that shape a result: those of every stage's key, and the reader of data sets."""
SHOWN = 3
NAMES = {
    "edgekit": "edgekit",
    "code": "edgekit's code",
    "python": "Python",
    "system": "the system",
    "machine": "the architecture",
    "instructions": "instruction sets",
}


def here(probe: str | None = None) -> dict[str, Any]:
    """The facts of this process's machine; `probe`: a file that somebody has just written, to be read here."""
    return {
        "edgekit": __version__,
        "code": code_digest()[:12],
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "instructions": " ".join(cpu.instruction_sets()) or "unknown",
        "processor": cpu.name() or platform.processor() or "unknown",
        "libraries": installed_versions(LIBRARIES),
        "probe": _read(probe),
    }


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    """In what a worker differs, a few words each with both values; empty where it may be used."""
    found = [
        _differ(words, theirs.get(name), ours[name]) for name, words in NAMES.items() if theirs.get(name) != ours[name]
    ]
    their_libraries = theirs.get("libraries") or {}
    found += [
        _differ(name, their_libraries.get(name), version)
        for name, version in ours["libraries"].items()
        if their_libraries.get(name) != version
    ]
    if theirs.get("probe") != ours["probe"]:
        found.append("it does not see the folder that the works write to")
    return found


def measures_alike(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Whether a worker may measure: its processor is that of this machine. Another computes the same bits, but slower
    or faster.
    """
    return bool(theirs.get("processor") == ours["processor"])


def in_a_line(found: list[str]) -> str:
    """The first differences, and how many more there are."""
    more = f"; {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


@cache
def code_digest() -> str:
    """Hex digest of all of edgekit's own source, as this process's disk has it."""
    names = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    return digest([[name.as_posix(), sha256_file(ROOT / name)] for name in names])


def _differ(words: str, theirs: Any, ours: Any) -> str:
    if words == NAMES["instructions"] and theirs and ours:
        lacks = [each for each in ours.split() if each not in theirs.split()]
        further = [each for each in theirs.split() if each not in ours.split()]
        said = [f"without {' '.join(lacks)}"] * bool(lacks) + [f"with {' '.join(further)} beside ours"] * bool(further)
        return f"{words} {', '.join(said)}"
    return f"{words} {theirs or 'missing'}, here {ours or 'missing'}"


def _read(probe: str | None) -> str | None:
    if probe is None:
        return None
    try:
        return Path(probe).read_text(encoding="utf-8")
    except OSError:
        return None
