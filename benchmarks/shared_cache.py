"""A second machine and a finished run: how long `edgekit run --cache` takes through a folder and an S3 server.

    python -m benchmarks.shared_cache [--config configs/digits.yaml] [--out FOLDER] [--rounds 5]

`--out` holds a finished run of the config, or it is made there. Each round is a fresh folder and a process of its own;
the stores take turns. `build/moto/.made`, which make fills, is the S3 server; without it only a folder is measured.
A second machine of the same class is this one: bytes go through the store, and nothing else is shared.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from edgekit.core.hashing import sha256_file
from tests.workbook.shared_cache import s3

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Fill the stores, take from them in turns, print seconds and CPU-seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "digits.yaml")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        stores = {"folder": (str(folder / "cache"), {})}
        if s3.SERVER.is_file():
            port = stack.enter_context(s3.serving(folder / "log"))
            stores["S3"] = ("s3://bucket/prefix", s3.environment(port))
        first = options.out or folder / "first"
        seconds: dict[str, list[tuple[float, float]]] = {}
        for what, (url, environment) in stores.items():
            seconds[f"{what}, put"] = [timed(options.config, first, url, environment)]
        for number in range(options.rounds):
            for what, (url, environment) in stores.items():
                second = folder / f"{what}-{number}"
                seconds.setdefault(f"{what}, taken", []).append(timed(options.config, second, url, environment))
                assert bundles(second) == bundles(first), "other bytes"
        sizes = [path.stat().st_size for path in (folder / "cache").rglob("*") if path.is_file()]
    print(f"{len(sizes)} objects, {sum(sizes):,} bytes")
    print(f"{'':<16}{'median s':>9}{'min':>8}{'max':>8}{'CPU s':>8}")
    for what, taken in seconds.items():
        wall, cpu = np.array(taken).T
        print(f"{what:<16}{np.median(wall):>9.2f}{wall.min():>8.2f}{wall.max():>8.2f}{np.median(cpu):>8.2f}")


def timed(config: Path, out: Path, url: str, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds of one `edgekit run`, and its CPU-seconds."""
    command = [sys.executable, "-m", "edgekit", "run", str(config), "--out", str(out), "--cache", url]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    taken, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return taken, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def bundles(out: Path) -> dict[str, str]:
    """The sha256 of each bundle, by its name."""
    return {path.name: sha256_file(path) for path in out.glob("*/bundles/*.edge.zip")}


if __name__ == "__main__":
    main()
