"""A data set several times larger than the memory that a process may still take trains, is calibrated and evaluated."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.data import memory_map
from tests import requirements

FEATURES, SAMPLES = 12_288, 5120
"""48 kB a sample, 240 MB in all."""
ALLOWED_MB = 90

CHILD = """
import json, resource, sys
from pathlib import Path
import torch
from edgekit.core.config import TrainOptions
from edgekit.data import load, parse
from edgekit.models.mlp import mlp
from edgekit.runner.preprocess.transform import apply
from edgekit.stages.quantize import ptq
from edgekit.training.predict import evaluate
from edgekit.training.fit import fit
from tests.training.test_fit import blobs, data_of, options

def in_use():
    [line] = [line for line in open("/proc/self/status") if line.startswith("VmData:")]
    return int(line.split()[1]) << 10

def work(data, epochs):
    network = mlp(data.raw_shape, len(data.classes), width=8)
    fit(network, data, [], TrainOptions(epochs=epochs, batch_size=32, learning_rate=0.02, augment="none"),
        seed=0, device="cpu", threads=1)
    ptq.quantize(network, ptq.calibration_inputs(data.calibration.x, [], 32))
    scores = [evaluate(network, split, []) for split in (data.validation, data.test)]
    one_by_one = [network(torch.from_numpy(apply([], sample[None]).copy())).detach() for sample in data.test.x]
    return scores, len(one_by_one)

work(data_of(blobs, "vector", 3), 1)  # what libraries take once is no part of it
most = in_use() + (int(sys.argv[2]) << 20)
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
folder = Path(sys.argv[1])
data = load(parse({"source": "webdataset", "path": str(folder / "shards"), "kind": "vector",
                   "cache": str(folder / "cache"), "calibration_samples": 40}))
print(json.dumps(work(data, 2)))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards of noise around one of two directions."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "shards").mkdir()
    random = np.random.default_rng(0)
    way = random.choice([-0.1, 0.1], FEATURES).astype(np.float32)
    for number in range(4):
        with tarfile.open(folder / "shards" / f"{number}.tar", "w") as tar:
            for n in range(SAMPLES // 4):
                x = random.standard_normal(FEATURES, np.float32) + (way if n % 2 else -way)
                stream = io.BytesIO()
                np.save(stream, x)
                for name, data in ((f"{n}.npy", stream.getvalue()), (f"{n}.cls", b"%d" % (n % 2))):
                    info = tarfile.TarInfo(name)
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    return folder


def limited(home: Path, split_mb: int) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        memory_map.LIMIT_VARIABLE: str(split_mb),
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "131072",
    }
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(home), str(ALLOWED_MB)],
        cwd=Path(__file__).parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.processes
def test_four_times_the_memory_that_is_left_is_enough_data(home: Path) -> None:
    requirements.condition(sys.platform == "linux", "Linux", why="elsewhere RLIMIT_DATA does not count what is mapped")
    done = limited(home, split_mb=8)
    assert done.returncode == 0, done.stderr[-2000:]
    (validation, test), tested = json.loads(done.stdout.splitlines()[-1])
    assert validation > 0.9 and test > 0.9 and tested > 800
    in_memory = limited(home, split_mb=1000)  # the limit is one: a copy of the train split does not fit
    assert in_memory.returncode == 1 and "MemoryError" in in_memory.stderr
