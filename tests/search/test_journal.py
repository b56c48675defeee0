"""The journal: every line is complete or absent, and damage that no kill can cause is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.core.errors import ResourceError, TrustError
from edgekit.search.journal import FILE, Journal
from tests import requirements


def test_lines_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "study")
    for number in range(3):
        journal.append({"trial": number})
    assert Journal(tmp_path / "study").lines() == [{"trial": 0}, {"trial": 1}, {"trial": 2}]


@pytest.mark.parametrize(
    "torn", [b'{"trial":2', b'{"trial":2}', b"\0\0\0\0", b"\0\0\0\n", b'{"tri\n', b"[1]\n", b"\xff\n"]
)
def test_a_torn_last_line_is_dropped_and_written_again(tmp_path: Path, torn: bytes) -> None:
    Journal(tmp_path).append({"trial": 1})
    with open(tmp_path / FILE, "ab") as stream:
        stream.write(torn)
    journal = Journal(tmp_path)
    journal.append({"trial": 3})
    assert Journal(tmp_path).lines() == [{"trial": 1}, {"trial": 3}]


def test_a_broken_line_before_others_is_reported(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'{"trial":1}\n{"tri\n{"trial":3}\n')
    with pytest.raises(TrustError, match=r"trials.jsonl: line 2 is broken, but others follow it; restore the file"):
        Journal(tmp_path).lines()


FULL = """
import sys
from pathlib import Path
from edgekit.core.errors import ResourceError
from edgekit.search.journal import Journal
journal = Journal(Path(sys.argv[1]))
try:
    for number in range(10_000):
        journal.append({"trial": number, "text": "x" * 100})
except ResourceError as error:
    print(error)
print(len(Journal(Path(sys.argv[1])).lines()) == number, journal.path.read_bytes()[-2:])
journal.path.with_name("fill").unlink()
journal.append({"trial": number})
print(len(Journal(Path(sys.argv[1])).lines()) == number + 1)
"""


def test_a_full_disk_is_one_line_and_costs_no_other(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=64k none {disk} || exit 99; head -c 16384 /dev/zero > {disk}/fill; exec "$@"'
    command = [*requirements.mount(), "sh", "-c", script, "sh", sys.executable, "-c", FULL, str(disk)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout, done.stderr
    text, whole, again = done.stdout.splitlines()
    assert text.startswith(f"{disk}/{FILE}: cannot be written (No space left on device). "), text
    assert (whole, again) == ("True b'}\\n'", "True")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        place = Path("/proc/study")
    else:
        place = tmp_path / "closed" / "study"
        place.parent.mkdir(mode=0o500)
    with pytest.raises((ResourceError, OSError)) as error:
        Journal(place)
    assert "\n" not in str(error.value)
