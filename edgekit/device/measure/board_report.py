"""`edgerun bench BUNDLE --report FILE`: a board report, from which others can check how fast a bundle is on a board.

The bundle is timed against itself. The report contains every sample, so that a reader can compute all figures again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import __version__
from edgekit.device.autotune.tuning_process import TuningProcess
from edgekit.device.hardware import health
from edgekit.runner.bundle import sha256
from edgekit.runner.errors import ResourceError
from edgekit.runner.files import make_folder, write_atomically

if TYPE_CHECKING:
    from edgekit.runner.model import Model

KIND, FORMAT = "edgekit board report", 1
STARTS = 3


def write(file: str, path: str, model: Model, facts: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write the report. `rows` are the two measurements of the bundle at `path`. Raises ResourceError."""
    manifest, machine = model.manifest, {**facts["machine"], **health.board_facts()}
    del machine["host"]
    report = {
        **facts,
        "kind": KIND,
        "format": FORMAT,
        "edgekit": __version__,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "bundle": {name: getattr(manifest, name) for name in ("name", "version", "target", "variant", "task")},
        "inputs": [each.shape for each in manifest.inputs],
        "model_files": {name: manifest.members[name] for name in manifest.model_files},
        "machine": machine,
        "rows": [{name: value for name, value in row.items() if name != "bundle"} for row in rows],
        "starts": [
            start(
                getattr(model.release, "path", path),
                model.bundle.identity,
                model.backend.name,
                model.threads,
                model.device,
            )
            for _ in range(STARTS)
        ],
    }
    try:
        make_folder(Path(file).parent)
        write_atomically(Path(file), json.dumps({**report, "digest": digest(report)}, sort_keys=True).encode())
    except OSError as error:
        raise ResourceError(f"--report {file}: {error.strerror or error}; name a file that can be written") from None


def digest(report: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a report without its key `digest`."""
    rest = {name: value for name, value in report.items() if name != "digest"}
    return sha256.hexdigest(json.dumps(rest, sort_keys=True).encode())


def start(path: str, identity: str, interpreter: str, threads: int = 1, device: str = "CPU") -> dict[str, Any]:
    """Open a bundle in a new process, and return `open_ms`, `peak_bytes` and the result of its `selftest`."""
    with TuningProcess(path, identity) as child:
        opened = child.ask("open", interpreter=interpreter, threads=threads, device=device)
        return {"open_ms": opened["open_ms"], "selftest": child.ask("selftest"), **child.ask("peak")}
