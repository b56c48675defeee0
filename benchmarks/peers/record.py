"""peers.json: what each peer made of one subject, kept from one call of the command to the next."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.peer import Failure, File, Made, Peer
from edgekit.core.errors import EdgekitError

NAME = "peers.json"


@dataclass(frozen=True)
class Record:
    """A row for each peer by its name, of the subject with that digest; files are named as they lie below `folder`."""

    folder: Path
    subject: str
    peers: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def files(self) -> list[Path]:
        """All files that run, in the peers' order."""
        return [self.folder / row["path"] for name in sorted(self.peers) for row in self.peers[name]["files"]]

    def write(self) -> None:
        """Write it whole."""
        path = self.folder / NAME
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps({"subject": self.subject, "peers": self.peers}, indent=1) + "\n")
        unfinished.replace(path)


def read(folder: Path, subject: str) -> Record:
    """What was recorded of this subject in `folder`; of another one nothing is kept."""
    path = folder / NAME
    told = json.loads(path.read_text()) if path.is_file() else {}
    return Record(folder, subject, told["peers"] if told.get("subject") == subject else {})


def row(peer: Peer, made: Made, folder: Path, judged: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What a peer made; a file that the workbook's interpreter refuses is no rival, and stands among the failures."""
    files, failures = [], list(made.failures)
    for file in made.files:
        try:
            found = judged(file.path)
        except EdgekitError as error:
            failures.append(Failure(file.path.name, file.how, str(error).replace(f"{file.path}: ", "")))
            continue
        files.append(_file(file, folder, found))
    return {
        **_told(peer),
        "seconds": made.seconds,
        "tried": made.tried,
        "files": files,
        "failures": [{"file": one.name, "how": one.how, "why": one.why} for one in failures],
    }


def failed(peer: Peer, why: str) -> dict[str, Any]:
    """The row of a peer that could not be installed, or whose worker failed."""
    nothing = Failure("", "all", why.removeprefix(f"{peer.name}: "))
    return row(peer, Made([], [nothing], 0.0, 0), Path(), dict)


def _told(peer: Peer) -> dict[str, Any]:
    return {"what": peer.what, "packages": [*peer.first, *peer.packages, *peer.alone]}


def _file(file: File, folder: Path, judged: dict[str, Any]) -> dict[str, Any]:
    return {
        "file": file.path.name,
        "path": str(file.path.relative_to(folder)),
        "how": file.how,
        "seconds": file.seconds,
        "bytes": file.bytes,
        **judged,
        "options": {key: value for key, value in file.options.items() if value not in (None, {}, [])},
        "own": {"accuracy": file.accuracy, "p50_ms": file.p50_ms},
    }
