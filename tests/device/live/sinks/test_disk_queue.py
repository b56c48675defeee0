"""The queue on disk: what a process put before it was killed is there afterwards, in order, once, within a limit."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.device.live.sinks.disk_queue import DiskQueue
from edgekit.runner.errors import ResourceError
from tests.device.live.sinks.broker import until

PUTS_UNTIL_KILLED = """
import itertools, pathlib, sys, time
from edgekit.device.live.sinks.disk_queue import DiskQueue
queue = DiskQueue(pathlib.Path(sys.argv[1]), 50_000)
for number in itertools.count():
    queue.put(b"%d" % number)
    while len(queue) > 30:
        sequence, record = queue.after(0)
        while queue._unwritten():
            time.sleep(0.0005)
        queue.done(sequence)
        print(record.decode(), flush=True)
"""


def records(queue: DiskQueue) -> list[bytes]:
    listed, record = [], queue.after(0)
    while record:
        listed.append(record[1])
        record = queue.after(record[0])
    return listed


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def test_a_restart_keeps_what_is_not_done(tmp_path: Path) -> None:
    queue = DiskQueue(tmp_path)
    for number in range(10):
        queue.put(b"%d" % number)
    for _ in range(4):
        record = queue.after(0)
        assert record
        queue.done(record[0])
    queue.close()
    again = DiskQueue(tmp_path)
    assert records(again) == [b"%d" % number for number in range(4, 10)]
    again.put(b"new")
    assert records(again)[-1] == b"new"
    assert again.id == queue.id
    last = again.after(0)
    while last:
        again.done(last[0])
        last = again.after(last[0])
    again.close()
    empty = DiskQueue(tmp_path)
    assert len(empty) == 0 and len(files(tmp_path)) == 0
    empty.close()


def test_numbers_never_come_again(tmp_path: Path) -> None:
    """A broker remembers them, so that a record with an earlier number would not be sent."""
    highest = 0
    for _ in range(4):
        queue = DiskQueue(tmp_path)
        queue.put(b"x")
        record = queue.after(highest)
        assert record and record[0] > highest
        highest = record[0]
        queue.done(highest)
        queue.close()
    (tmp_path / "position").write_bytes(b"garbage")
    queue = DiskQueue(tmp_path)
    other = queue.id
    queue.close()
    queue = DiskQueue(tmp_path)
    assert queue.id == other, "the new id is kept"
    queue.close()


def test_killed_while_it_works(tmp_path: Path) -> None:
    """Whatever was done stays done, and the rest is there in order and without gaps, but for what was put last."""
    done: list[int] = []
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", PUTS_UNTIL_KILLED, str(tmp_path / str(len(done)))], stdout=subprocess.PIPE
        )
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(60)]
        process.kill()
        lines += process.stdout.readlines()
        process.wait()
        numbers = [int(line) for line in lines if line.endswith(b"\n")]
        assert numbers == list(range(len(numbers)))
        queue = DiskQueue(tmp_path / str(len(done)))
        left = [int(record) for record in records(queue)]
        queue.close()
        assert left == list(range(left[0], left[0] + len(left)))
        assert left[0] in (len(numbers), len(numbers) + 1), "the last may be done and not printed"
        done.append(len(numbers))


def test_a_torn_end_costs_only_that_record(tmp_path: Path) -> None:
    queue = DiskQueue(tmp_path)
    for number in range(5):
        queue.put(b"record %d" % number)
    queue.close()
    (file,) = files(tmp_path)
    file.write_bytes(file.read_bytes()[:-3])
    queue = DiskQueue(tmp_path)
    assert records(queue) == [b"record %d" % number for number in range(4)]
    queue.put(b"after it")
    queue.close()
    queue = DiskQueue(tmp_path)
    assert records(queue)[-1] == b"after it" and len(queue) == 5
    queue.close()


def test_a_full_queue_drops_the_oldest_and_counts_them(tmp_path: Path) -> None:
    queue = DiskQueue(tmp_path, most_bytes=20_000)
    for number in range(1000):
        queue.put(b"%0100d" % number)
    left = records(queue)
    assert queue.dropped + len(left) == 1000
    assert left == [b"%0100d" % number for number in range(1000 - len(left), 1000)]
    assert len(left) > 100
    queue.close()
    assert sum(each.stat().st_size for each in files(tmp_path)) <= 20_000 + 20_000 // 8
    queue = DiskQueue(tmp_path, most_bytes=20_000)
    assert records(queue)[-1] == b"%0100d" % 999
    queue.put(bytes(5000))
    assert queue.dropped == 1, "a record larger than a file"
    queue.close()


def test_the_disk_stays_within_the_limit_while_records_come_and_go(tmp_path: Path) -> None:
    queue = DiskQueue(tmp_path, most_bytes=16_000)
    for _ in range(20):
        for _ in range(50):
            queue.put(bytes(100))
        until(lambda: not queue._unwritten())
        record = queue.after(0)
        while record:
            queue.done(record[0])
            record = queue.after(record[0])
        assert sum(each.stat().st_size for each in files(tmp_path)) < 20_000
    assert queue.dropped == 0
    queue.close()


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    queue = DiskQueue(tmp_path)
    with pytest.raises(ResourceError, match="this queue is in use"):
        DiskQueue(tmp_path)
    queue.close()
    DiskQueue(tmp_path).close()


def test_a_disk_that_refuses_delays_nothing(tmp_path: Path) -> None:
    """With a limit on the size of files, the system refuses writes as a full disk does."""
    code = """
import pathlib, resource, sys, time
from edgekit.device.live.sinks import disk_queue
disk_queue.RETRY_S = 0.05
queue = disk_queue.DiskQueue(pathlib.Path(sys.argv[1]))
queue.put(b"%0100d" % 0)
while queue._unwritten():
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))  # in the middle of a record
for number in range(1, 100):
    queue.put(b"%0100d" % number)
while not queue.problem:
    time.sleep(0.01)
assert len(queue) == 100 and queue.after(0)[1] == b"%0100d" % 0, "served from memory"
assert "File too large" in queue.problem, queue.problem
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
while queue.problem:
    time.sleep(0.01)
queue.put(b"last")
queue.close()
queue = disk_queue.DiskQueue(pathlib.Path(sys.argv[1]))
assert len(queue) == 101, len(queue)
assert [queue.after(each)[1] for each in queue._sequences[:98]] == [b"%0100d" % each for each in range(1, 99)]
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stderr
    assert signal.SIGXFSZ  # which Python ignores, so that the write fails instead


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ResourceError, match="file/queue: .*; name a folder that this user may write to"):
        DiskQueue(tmp_path / "file" / "queue")
