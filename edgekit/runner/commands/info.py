"""`edgerun info`: show what a bundle holds and what it needs."""

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
    """Add the command's arguments."""
    _shared.add_bundle_arguments(parser)


def run(options: argparse.Namespace) -> None:
    """Print a few lines, or the whole manifest as JSON."""
    from edgekit.runner import bundle

    opened = bundle.read(options.bundle)
    manifest = opened.manifest
    if options.json:
        sys.stdout.write(manifest_json.to_json(manifest).decode())
        return
    size = sum(len(data) for data in opened.model_files().values())
    rows = {
        "bundle": f"{manifest.name} {manifest.version} ({manifest.variant})",
        "target": manifest.target,
        "model": f"{', '.join(manifest.model_files)}, {size:,} bytes",
        "takes": _sample(manifest.raw),
        "from a file": ", ".join(step["step"] for step in manifest.raw.steps) or "a .npy array as it is",
        "preprocess": ", ".join(step["step"] for step in manifest.preprocess) or "none",
        "task": manifest.task,
        "labels": _shorten(manifest.labels) or "none",
        **(
            {"states": ", ".join(f"{each.name} {list(each.shape)}" for each in manifest.states)}
            if manifest.states
            else {}
        ),
        "needs": ", ".join(manifest.requirements) or "nothing recorded",
    }
    for label, value in rows.items():
        print(f"{label:<11} {value}")


def _sample(raw: RawSpec) -> str:
    """Return kind, dtype and shape, or one line for each of several tensors."""
    if raw.tensors is None:
        return f"{raw.kind} {raw.dtype}{list(raw.shape)}"
    return ("\n" + " " * 12).join(map(describe, raw.tensors))


def _shorten(labels: list[str], limit: int = 12) -> str:
    listed = ", ".join(labels[:limit])
    return listed if len(labels) <= limit else f"{listed}, … ({len(labels)} in total)"
