"""Does the memory of a whole run grow with its data? Runs over shards of several sizes, and what each process held.

    python -m benchmarks.large_data [--megabytes 64,640] [--split-mb 16] [--folder FOLDER]

For each size WebDataset shards of vectors are written, and `edgekit run` walks over them: train, distill, prune,
quantize, convert, benchmark, bundle. Several times a second the anonymous memory (RssAnon) of every process of the run
is read: what the process itself holds, without the pages of mapped files, which the system takes back when it needs
them. Told are the most that one process held, and the most that all held together.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from edgekit.data.mapped import LIMIT

FEATURES = 12_288
SHARD_SAMPLES = 512
LOOK_S = 0.2


def main() -> None:
    """A row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--megabytes", default="64,640", help="sizes of the raw samples")
    parser.add_argument("--split-mb", type=int, default=16, help="size of a split that is copied into memory")
    parser.add_argument("--folder", help="where to work; none: a temporary folder")
    options = parser.parse_args()
    print("raw MB | samples | most of one process, MB | most of all together, MB | wall s | exit code")
    with tempfile.TemporaryDirectory(dir=options.folder) as home:
        for megabytes in map(int, options.megabytes.split(",")):
            folder = Path(home) / str(megabytes)
            count = shards(folder / "shards", megabytes)
            row = walked(folder, options.split_mb)
            print(" | ".join(map(str, (megabytes, count, *row))), flush=True)


def shards(folder: Path, megabytes: int) -> int:
    """Noise around one of two directions, 48 kB a sample; how many samples."""
    folder.mkdir(parents=True)
    count = (megabytes << 20) // (4 * FEATURES)
    random = np.random.default_rng(0)
    way = random.choice([-0.05, 0.05], FEATURES).astype(np.float32)
    for first in range(0, count, SHARD_SAMPLES):
        with tarfile.open(folder / f"{first:07}.tar", "w") as tar:
            for n in range(first, min(first + SHARD_SAMPLES, count)):
                stream = io.BytesIO()
                np.save(stream, random.standard_normal(FEATURES, np.float32) + (way if n % 2 else -way))
                for name, data in ((f"{n}.npy", stream.getvalue()), (f"{n}.cls", b"%d" % (n % 2))):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return count


def walked(folder: Path, split_mb: int) -> tuple[int, int, int, int]:
    """The most megabytes of one process and of all, the seconds and the exit code of a run over the shards."""
    builder = "edgekit.models.mlp:mlp"
    config = {
        "name": "large",
        "data": {
            "source": "webdataset", "path": str(folder / "shards"), "kind": "vector", "cache": str(folder / "cache"),
            "calibration_samples": 64,
        },
        "model": {"builder": builder, "kwargs": {"width": 16}},
        "budget": {"accuracy_drop_pp": 50.0},
        "profile": {"epochs": 1, "latency_calls": 40, "operator_calls": 5, "compiling": False, "runtimes": False},
        "distill": {"student": {"builder": builder, "kwargs": {"width": 8}}, "epochs": 1},
        "prune": {"measure": False, "epochs": 1, "steps": 1, "sparsity_steps": 1, "channel_multiple": 2},
        "quantize": {"epochs": 1, "calibration_samples": 64, "recipes": ["minmax"], "study_sizes": [8]},
        "convert": {"calibration_samples": 64, "check_samples": 32, "models": ["baseline"]},
        "benchmark": {"rounds": 10, "calls_per_round": 5, "most_rounds": 10, "load_s": 0},
    }  # fmt: skip
    (folder / "run.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "edgekit", "run", str(folder / "run.yaml"), "--out", str(folder / "out")]
    began = time.monotonic()
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, env={**os.environ, LIMIT: str(split_mb)}, stdout=log, stderr=log)
    one = together = 0
    while process.poll() is None:
        held = anonymous_kb(process.pid)
        one, together = max([one, *held]), max(together, sum(held))
        time.sleep(LOOK_S)
    if process.returncode:
        print((folder / "log").read_text()[-2000:], file=sys.stderr)
    return one >> 10, together >> 10, round(time.monotonic() - began), process.returncode


def anonymous_kb(root: int) -> list[int]:
    """RssAnon of a process and of all that it started."""
    parents, held = dict[int, int](), dict[int, int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        except OSError:  # it has ended
            continue
        parents[int(fields["Pid"])] = int(fields["PPid"])
        held[int(fields["Pid"])] = int(fields.get("RssAnon", "0 kB").split()[0])
    mine = {root}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return [held.get(pid, 0) for pid in mine]


if __name__ == "__main__":
    main()
