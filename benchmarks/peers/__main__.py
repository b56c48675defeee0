"""Files that peers make of a run's baseline: `python -m benchmarks.peers CONFIG --run RUN [--minutes M]`.

They are written as rivals: `edgekit run CONFIG --set benchmark.rivals=…` measures them beside the run's own files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from benchmarks.environments import NotRun
from benchmarks.peers import olive, subject
from edgekit.core.errors import EdgekitError

HOME = Path(__file__).resolve().parents[2] / "build" / "peers"


def main() -> int:
    """Search, copy the front, print it, and the setting that measures it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("config", type=Path, help="config of the run")
    parser.add_argument("--run", type=Path, required=True, help="folder of the finished run, as artifacts/cifar10")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long a peer searches (default: 30)")
    options = parser.parse_args()
    folder = HOME / options.run.resolve().name
    try:
        subject.write(options.config, options.run, folder)
        files = olive.search(folder, round(60 * options.minutes), HOME / "olive")
    except (NotRun, EdgekitError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 1
    kept = olive.front(files)
    print(f"olive: {len(files)} files in {options.minutes:g} minutes, {len(kept)} on its front")
    paths = [_keep(file, folder / f"olive-{number}.onnx") for number, file in enumerate(kept)]
    setting = f"benchmark.rivals={json.dumps(subject.rivals(options.config, paths))}"
    (folder / "rivals.txt").write_text(setting + "\n")
    print(f'edgekit run {options.config} --out {options.run.parent} --set "$(cat {folder / "rivals.txt"})"')
    return 0


def _keep(file: olive.File, path: Path) -> Path:
    shutil.copyfile(file.path, path)
    short = {key: value for key, value in file.options.items() if value not in (None, {}, [])}
    print(f"{path.name}: {100 * file.accuracy:.2f} %, {1000 * file.p50_ms:.0f} µs, {file.bytes:,} B, {short}")
    return path


if __name__ == "__main__":
    sys.exit(main())
