"""Let other toolkits create files from a run's baseline.

    python -m benchmarks.peers CONFIG --run RUN [--only NAME] [--minutes M]

The files are written as reference models: `edgekit run CONFIG --set benchmark.rivals=…` measures them beside the run's
own files. `python -m benchmarks.peers.page RUN` then writes the page with all figures. If a toolkit cannot be installed
or fails, a line says so, the other toolkits are still run, and the exit code is 1.
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
    """Run each toolkit, print its files and failures, and print the setting that measures the files."""
    options = _options()
    folder = (options.out or HOME / options.run.resolve().name).resolve()
    try:
        measured_subject = subject.write_subject(options.config, options.run, folder / "subject")
    except (NotRun, EdgekitError) as error:
        return _report_failure(str(error))
    record = read_record(folder, measured_subject.sha256)
    exit_code = 0
    for name in options.only or PEERS:
        peer = PEERS[name]
        try:
            output = peer.files(
                measured_subject.folder, folder / name, options.environments, round(60 * options.minutes)
            )
            record.peers[name] = record_row(peer, output, folder, measured_subject.evaluate)
        except NotRun as error:
            record.peers[name] = failed_row(peer, str(error))
        record.write()
        exit_code |= _print_peer(name, record.peers[name])
    if not record.files:
        return exit_code
    setting = f"benchmark.rivals={json.dumps(measured_subject.rivals_option(record.files))}"
    (folder / "rivals.txt").write_text(setting + "\n")
    print(f'edgekit run {options.config} --out {options.run.parent} --set "$(cat {folder / "rivals.txt"})"')
    return exit_code


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


def _print_peer(name: str, peer_row: dict[str, Any]) -> int:
    """Print what a toolkit made. Returns 1 if a file could not be made or run."""
    print(
        f"{name}: kept {len(peer_row['files'])} of {peer_row['tried']} files, {peer_row['seconds']:.0f} s", flush=True
    )
    for row in peer_row["files"]:
        options = f", {row['options']}" if row["options"] else ""
        accuracy = 100 * row["accuracy_validation"]
        print(f"  {row['file']}: {row['how']}, {accuracy:.2f} % of validation, {row['bytes']:,} B{options}", flush=True)
    lines = [": ".join(word for word in (name, row["file"], row["why"]) if word) for row in peer_row["failures"]]
    return max(map(_report_failure, lines), default=0)


def _report_failure(message: str) -> int:
    print(f"peers: {message}", file=sys.stderr, flush=True)
    return 1


if __name__ == "__main__":
    sys.exit(main())
