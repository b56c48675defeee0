"""Files that peers make of a run's baseline: `python -m benchmarks.peers CONFIG --run RUN [--only NAME] [--minutes M]`.

They are written as rivals: `edgekit run CONFIG --set benchmark.rivals=…` measures them beside the run's own files.
`python -m benchmarks.peers.page RUN` then writes the page with all figures. A peer that cannot be installed or fails is
told in a line, and the others go on; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.harness import BUILD, NotRun, parser
from benchmarks.peers import subject
from benchmarks.peers.peer import failed_row, read_record, record_row
from benchmarks.peers.toolkits import PEERS
from edgekit.core.errors import EdgekitError

HOME = BUILD / "peers"


def main() -> int:
    """Each peer in turn, its files and what became of them, and the setting that measures them."""
    options = _options()
    folder = (options.out or HOME / options.run.resolve().name).resolve()
    try:
        given = subject.write(options.config, options.run, folder / "subject")
    except (NotRun, EdgekitError) as error:
        return _told(str(error))
    told = read_record(folder, given.sha256)
    failed = 0
    for name in options.only or PEERS:
        peer = PEERS[name]
        try:
            made = peer.files(given.folder, folder / name, options.environments, round(60 * options.minutes))
            told.peers[name] = record_row(peer, made, folder, given.judged)
        except NotRun as error:
            told.peers[name] = failed_row(peer, str(error))
        told.write()
        failed |= _show(name, told.peers[name])
    if not told.files:
        return failed
    setting = f"benchmark.rivals={json.dumps(given.rivals(told.files))}"
    (folder / "rivals.txt").write_text(setting + "\n")
    print(f'edgekit run {options.config} --out {options.run.parent} --set "$(cat {folder / "rivals.txt"})"')
    return failed


def _options() -> argparse.Namespace:
    arguments = parser(__doc__, "python -m benchmarks.peers")
    arguments.add_argument("config", type=Path, help="config of the run")
    arguments.add_argument("--run", type=Path, required=True, help="folder of the finished run, as artifacts/cifar10")
    arguments.add_argument("--only", action="append", choices=PEERS, metavar="NAME", help=f"of {', '.join(PEERS)}")
    arguments.add_argument("--minutes", type=float, default=30.0, help="how long a peer searches (default: 30)")
    arguments.add_argument("--out", type=Path, help="where files go (default: build/peers/NAME of the run)")
    arguments.add_argument(
        "--environments", type=Path, default=HOME / "environments", help="where each peer's environment is made"
    )
    options = arguments.parse_args()
    if not options.minutes > 0:
        arguments.error(f"--minutes: got {options.minutes:g}; give more than 0")
    return options


def _show(name: str, told: dict[str, Any]) -> int:
    """Print what a peer made; 1 where a file could not be made or run."""
    print(f"{name}: kept {len(told['files'])} of {told['tried']} files, {told['seconds']:.0f} s", flush=True)
    for row in told["files"]:
        options = f", {row['options']}" if row["options"] else ""
        accuracy = 100 * row["accuracy_validation"]
        print(f"  {row['file']}: {row['how']}, {accuracy:.2f} % of validation, {row['bytes']:,} B{options}", flush=True)
    lines = [": ".join(word for word in (name, row["file"], row["why"]) if word) for row in told["failures"]]
    return max(map(_told, lines), default=0)


def _told(words: str) -> int:
    print(f"peers: {words}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
