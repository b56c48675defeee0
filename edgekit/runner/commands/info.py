"""`edgerun info`: what is in a bundle, and what does it need?"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from edgekit.runner.bundle import manifest_json
from edgekit.runner.commands import _shared
from edgekit.runner.input_vector import describe

if TYPE_CHECKING:
    from edgekit.runner.bundle.manifest import RawSpec

HELP = "show what a bundle holds and what it needs"


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    _shared.add_bundle_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """A few lines, or the whole manifest as JSON."""
    from edgekit.runner import bundle

    found = bundle.read(options.bundle)
    facts = found.manifest
    if options.json:
        sys.stdout.write(manifest_json.to_json(facts).decode())
        return
    size = sum(len(data) for data in found.model_files().values())
    rows = {
        "bundle": f"{facts.name} {facts.version} ({facts.variant})",
        "target": facts.target,
        "model": f"{', '.join(facts.model_files)}, {size:,} bytes",
        "takes": _sample(facts.raw),
        "from a file": ", ".join(step["step"] for step in facts.raw.steps) or "a .npy array as it is",
        "preprocess": ", ".join(step["step"] for step in facts.preprocess) or "none",
        "task": facts.task,
        "labels": _shorten(facts.labels) or "none",
        **({"states": ", ".join(f"{each.name} {list(each.shape)}" for each in facts.states)} if facts.states else {}),
        "needs": ", ".join(facts.requirements) or "nothing recorded",
    }
    for word, value in rows.items():
        print(f"{word:<11} {value}")


def _sample(raw: RawSpec) -> str:
    """Kind, type and shape; of several tensors, a line for each."""
    if raw.tensors is None:
        return f"{raw.kind} {raw.dtype}{list(raw.shape)}"
    return ("\n" + " " * 12).join(map(describe, raw.tensors))


def _shorten(labels: list[str], most: int = 12) -> str:
    shown = ", ".join(labels[:most])
    return shown if len(labels) <= most else f"{shown}, … ({len(labels)} in all)"
