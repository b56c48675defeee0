"""Which machines may take one another's artifacts.

Two machines give the same bits where architecture, instruction sets and Python agree: a bundle records just these.
A latency, and what was decided by it, holds for machines that have the same processor and as many cores besides.
"""

from __future__ import annotations

import functools
import json
import platform
from typing import Any, Literal

from edgekit.core import replay
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import EdgekitError
from edgekit.core.hashing import digest
from edgekit.runner import cpu

Scope = Literal["bits", "times"]
"""What must agree: all that decides about bits, or that and all that decides about times."""
OF_TIMES = ("profile", "benchmark")
"""Stages of which a machine takes nothing from one that is faster or slower: the first is all about this machine."""
SOMETIMES = ("distill", "prune")
"""Likewise where latencies chose the candidates, or what is cut."""


def scopes(stage: str) -> tuple[Scope, ...]:
    """Under which scopes an artifact of `stage` may lie."""
    if stage in OF_TIMES:
        return ("times",)
    return ("bits", "times") if stage in SOMETIMES else ("bits",)


def scope_of(artifact: Artifact) -> Scope:
    """The scope of this artifact."""
    if artifact.stage in SOMETIMES:
        return "times" if measured(artifact) is not None else "bits"
    return scopes(artifact.stage)[0]


def measured(artifact: Artifact) -> Any:
    """What latencies decided, as decision.json has it; None where they decided nothing."""
    if artifact.stage not in replay.SHAPES or "decision.json" not in artifact.files:
        return None
    try:
        return json.loads(artifact.file("decision.json").read_text(encoding="utf-8")).get("measured")
    except (EdgekitError, OSError, ValueError, AttributeError):
        return None


@functools.cache
def facts(scope: Scope) -> dict[str, Any]:
    """What of this machine must agree."""
    from edgekit.stages.bundle.provenance import machine

    same_bits = machine()
    if scope == "bits":
        return same_bits
    return {**same_bits, "processor": cpu.name() or platform.processor(), "cores": cpu.usable()}


def name(scope: Scope) -> str:
    """A short name of this machine's class."""
    return f"{scope}-{digest(facts(scope))[:12]}"


def describe(found: dict[str, Any]) -> str:
    """A machine in a few words: `x86_64 avx2, Python 3.11, Intel Xeon, 2 cores`."""
    instructions = found.get("instructions") or []
    words = [
        " ".join([str(found.get("architecture")), *([str(instructions[-1])] if instructions else [])]),
        f"Python {found.get('python')}",
    ]
    if "processor" in found:
        words += [str(found["processor"]), f"{found.get('cores')} cores"]
    return ", ".join(words)
