"""A file is the same sample on an Arm board as in training on x86-64, to the last bit: every source's odd files."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from edgekit.data import Data, load, parse
from edgekit.models.from_artifact import spec_for
from tests.data import odd_files
from tests.data.sources import test_boxes, test_masks, test_webdataset
from tests.data.test_input_path import ODD, OF_THEIR_OWN, all_of

from .device import Device

pytestmark = [pytest.mark.aarch64, pytest.mark.slow]

Case = tuple[Path, Path, Path, Counter[str]]
WITH_PILLOW = ("litert", "tflite_runtime")  # numpy 2 and numpy 1
CODE = """
import hashlib, json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from edgekit.runner import inputs
from edgekit.runner.bundle.manifest import RawSpec
raw = RawSpec(**json.loads(Path(sys.argv[2]).read_text()))
members = {path.name: path.read_bytes() for path in Path(sys.argv[4]).iterdir()}
cut = next((step for step in raw.steps if step["step"] == "windows"), None)
first_alone = cut is not None and cut["fill"] == "silence"
found = []
for path in inputs.input_files(sys.argv[3], raw):
    for sample in inputs.samples(path, raw, members=members):
        if not first_alone or sample.span.start == 0:
            found.append(hashlib.sha256(sample.raw.tobytes()).hexdigest())
print(json.dumps(found))
"""


@pytest.fixture(scope="module", params=WITH_PILLOW)
def interpreter(request: pytest.FixtureRequest) -> str:
    """Those that Pillow is fetched beside: what reads files is the same with all of one numpy."""
    name: str = request.param
    return name


def boxed(home: Path) -> tuple[Path, Data]:
    """Odd pictures with a box in each."""
    test_boxes.odd_pictures(home)
    section = test_boxes.options(home.parent, "yolo", height=32, width=48, max_bad_fraction=0.9)
    return home / "images", load(parse(section, test_boxes.TASK))


def masked(home: Path) -> tuple[Path, Data]:
    """Odd pictures with a mask for each."""
    test_masks.odd_pictures(home)
    return home / "images", test_masks.read(home.parent, "folders")


def sharded(home: Path) -> tuple[Path, Data]:
    """Odd pictures, and shards of the same: the board gets the pictures."""
    odd_files.pictures(home, 120)
    members = list[tuple[str, bytes]]()
    for path in sorted(home.rglob("*.*")):
        members += [(path.name, path.read_bytes()), (f"{path.stem}.cls", path.parent.name.encode())]
    shard = test_webdataset.shard(home.with_name("shards") / "a.tar", members)
    return home, test_webdataset.read(shard, size=12)


OTHERS = {"boxes": boxed, "masks": masked, "webdataset": sharded}


def test_every_source_that_reads_files_is_asked() -> None:
    assert set(OTHERS) == OF_THEIR_OWN


@pytest.fixture(scope="module", params=sorted({*ODD, *OTHERS}))
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A folder of odd files, what a manifest says of its samples, the members that they need, and the digests."""
    home = tmp_path_factory.mktemp(request.param) / "data"
    if request.param in ODD:
        data = load(parse(ODD[request.param](home)))
    else:
        home, data = OTHERS[request.param](home)
    spec = home.parent / "raw.json"
    spec.write_text(json.dumps(spec_for(data, "edgekit.models.mlp:mlp", {}, []).raw))
    members = home.parent / "members"
    members.mkdir()
    for name, content in data.members.items():
        (members / name).write_bytes(content)
    return home, spec, members, Counter(hashlib.sha256(sample.tobytes()).hexdigest() for sample in all_of(data)[0])


def test_every_file_becomes_the_sample_that_training_read(device: Device, runner: Path, case: Case) -> None:
    home, spec, members, expected = case
    done = device.run("-c", CODE, runner, spec, home, members)
    assert done.returncode == 0, done.stderr[-2000:]
    assert Counter(json.loads(done.stdout)) == expected
