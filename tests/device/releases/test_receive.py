"""`edgerun receive`: files in pieces; what is stored is acknowledged, complete files are kept, wrong ones refused."""

from __future__ import annotations

import json
import os
import random
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.device.releases.device import ROOT, Device, digest

DATA = bytes(range(256)) * 1000


@pytest.fixture
def sha256(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(DATA)
    return digest(tmp_path / "file")


def answers(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_whole_file_is_kept_under_its_digest(empty: Device, sha256: str) -> None:
    (answer,) = answers(empty.do("receive", sha256, data=DATA))
    assert answer == {"sha256": sha256, "offset": len(DATA), "stored": True}
    assert (empty.root / "store" / sha256).read_bytes() == DATA
    assert not list((empty.root / "incoming").iterdir())
    assert empty.root.stat().st_mode & 0o777 == 0o700


def test_it_goes_on_where_the_line_was_cut(empty: Device, sha256: str) -> None:
    """By a client that asks for the offset, and by one that lets the device append."""
    chance, at = random.Random(22), 0
    while at < len(DATA):
        piece = DATA[at : at + chance.randrange(1, 60_000)]
        at += len(piece)
        offset = ["--offset", at - len(piece)] if chance.random() < 0.5 else []
        (answer,) = answers(empty.do("receive", sha256, *offset, data=piece))
        assert answer == {"sha256": sha256, "offset": at, "stored": at == len(DATA)}
    assert (empty.root / "store" / sha256).read_bytes() == DATA


def test_another_offset_is_refused_with_the_true_one(empty: Device, sha256: str) -> None:
    empty.do("receive", sha256, data=DATA[:1000])
    done = empty.run("receive", sha256, "--offset", 999, data=DATA[999:])
    assert done.returncode == 4 and "1000 bytes have arrived" in done.stderr
    assert answers(done.stdout) == [{"sha256": sha256, "offset": 1000, "stored": False}]
    assert (empty.root / "incoming" / sha256).read_bytes() == DATA[:1000]


def test_what_is_stored_already_is_not_read_again(empty: Device, sha256: str) -> None:
    empty.do("receive", sha256, data=DATA)
    (answer,) = answers(empty.do("receive", sha256, "--offset", 7))
    assert answer["stored"] and answer["offset"] == len(DATA)


def test_a_wrong_digest_at_the_expected_end_is_removed(empty: Device, sha256: str) -> None:
    spoilt = DATA[:500] + b"!" + DATA[501:]
    assert "another digest" in empty.refused(8, "receive", sha256, "--size", len(DATA), data=spoilt)
    assert not list((empty.root / "incoming").iterdir()) and not list((empty.root / "store").iterdir())
    empty.do("receive", sha256, "--size", len(DATA), data=DATA)


def test_more_than_the_expected_bytes_are_refused(empty: Device, sha256: str) -> None:
    assert "more than 100 bytes" in empty.refused(4, "receive", sha256, "--size", 100, data=DATA)
    empty.do("receive", sha256, data=DATA[:200])
    assert "another digest" in empty.refused(8, "receive", sha256, "--size", 100)


def test_without_a_size_a_wrong_file_is_never_stored(empty: Device, sha256: str) -> None:
    (answer,) = answers(empty.do("receive", sha256, data=DATA + b"!"))
    assert not answer["stored"]
    assert "another digest" in empty.refused(8, "receive", sha256, "--size", len(DATA))


def test_a_wrong_file_without_a_size_is_begun_anew(empty: Device, sha256: str) -> None:
    """A piece that is wrong looks like one that is not the last, so the sender has to say it."""
    done = empty.run("receive", sha256, "--acknowledge", 1, data=b"!" * 100)
    assert done.stderr.count("\n") == 1, "once, and not for each answer"
    assert done.returncode == 0 and not answers(done.stdout)[0]["stored"]
    assert (
        done.stderr.startswith("edgerun: 100 bytes have arrived, which is not yet the complete file")
        and "--restart" in done.stderr
    )
    (answer,) = answers(empty.do("receive", sha256, "--restart", data=DATA[:1000]))
    assert answer == {"sha256": sha256, "offset": 1000, "stored": False}
    done = empty.run("receive", sha256, data=DATA[1000:])
    assert answers(done.stdout)[0]["stored"] and done.stderr == ""
    assert answers(empty.do("receive", sha256, "--restart"))[0]["stored"], "a whole file stays"


def test_a_sender_that_hangs_spoils_nothing_that_was_begun_anew(empty: Device, sha256: str) -> None:
    hanging = empty.start_receiving(sha256, "--acknowledge", 1)
    assert hanging.stdin and hanging.stdout
    hanging.stdin.write(DATA[:10])
    hanging.stdin.flush()
    assert json.loads(hanging.stdout.readline())["offset"] == 10
    empty.do("receive", sha256, "--restart", data=DATA[:10])
    _, err = hanging.communicate(b"!" * 100, timeout=60)
    assert hanging.returncode == 4 and b"another command is appending to it" in err
    (answer,) = answers(empty.do("receive", sha256, "--offset", 10, data=DATA[10:]))
    assert answer["stored"]


def test_a_size_that_no_bundle_has_is_refused(empty: Device, sha256: str) -> None:
    words = f"got a size of {2**31} bytes, but at most {2**31 - 1} are accepted"
    assert words in empty.refused(4, "receive", sha256, "--size", 2**31, data=DATA)
    assert not empty.root.exists()


def test_a_file_that_does_not_fit_on_the_disk_is_refused_before_it_is_sent(
    empty: Device, sha256: str, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nreal = os.statvfs\n"
        "os.statvfs = lambda path: os.statvfs_result((*real(path)[:4], 1, *real(path)[5:]))\n"
    )
    full = Device(empty.root, {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])})
    answer = full.refused(7, "receive", sha256, "--size", len(DATA), data=DATA)
    assert f"{len(DATA)} more bytes are needed" in answer and "use `edgerun gc`" in answer
    assert empty.status()["incoming"] == {sha256: 0}


def test_a_closed_standard_input_is_an_error(empty: Device, sha256: str) -> None:
    closed = Device(empty.root, command=["sh", "-c", 'exec "$@" <&-', "sh", *empty.command])
    assert "standard input is closed; send the file there" in closed.refused(4, "receive", sha256)


def test_it_acknowledges_as_it_goes(empty: Device, sha256: str) -> None:
    process = empty.start_receiving(sha256, "--acknowledge", 1000)
    assert process.stdin and process.stdout
    for at in (1000, 2500):
        process.stdin.write(DATA[at - (1000 if at == 1000 else 1500) : at])
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["offset"] == at
    out, _ = process.communicate(DATA[2500:], timeout=60)
    assert json.loads(out.splitlines()[-1])["stored"]


def test_a_sender_whose_line_hangs_holds_up_nobody(empty: Device, sha256: str) -> None:
    """Its end, when it wakes up, is refused: another one has gone on."""
    hanging = empty.start_receiving(sha256, "--acknowledge", 1)
    assert hanging.stdin and hanging.stdout
    hanging.stdin.write(DATA[:10])
    hanging.stdin.flush()
    assert json.loads(hanging.stdout.readline())["offset"] == 10
    (answer,) = answers(empty.do("receive", sha256, "--offset", 10, data=DATA[10:]))
    assert answer["stored"]
    _, err = hanging.communicate(DATA[10:], timeout=60)
    assert hanging.returncode == 4 and b"another command is appending to it" in err
    assert (empty.root / "store" / sha256).read_bytes() == DATA


def test_two_senders_of_one_file_cannot_spoil_it(empty: Device, sha256: str) -> None:
    both = [empty.start_receiving(sha256, "--offset", 0) for _ in range(2)]
    for process in both:
        assert process.stdin
        with suppress(BrokenPipeError):  # it may have been refused already
            process.stdin.write(DATA[: len(DATA) // 2])
    for process in both:
        process.communicate(DATA[len(DATA) // 2 :], timeout=60)
    empty.do("receive", sha256, "--size", len(DATA), data=DATA[empty.status()["incoming"].get(sha256, 0) :])
    assert (empty.root / "store" / sha256).read_bytes() == DATA


@pytest.mark.parametrize("name", ["", "x" * 64, "../../etc/passwd", "A" * 64, "a" * 63])
def test_what_is_no_digest_is_a_misspelt_command(name: str, empty: Device) -> None:
    assert empty.run("receive", name, data=DATA).returncode == 2
    assert not empty.root.exists()


def test_a_link_in_its_place_is_not_followed(empty: Device, sha256: str, tmp_path: Path) -> None:
    empty.do("receive", sha256, data=b"")
    victim = tmp_path / "victim"
    victim.write_bytes(b"kept")
    (empty.root / "incoming" / sha256).unlink()
    os.symlink(victim, empty.root / "incoming" / sha256)
    assert empty.run("receive", sha256, data=DATA).returncode == 7
    assert victim.read_bytes() == b"kept"


def test_a_full_disk_is_an_error_and_the_rest_can_follow(empty: Device, sha256: str, tmp_path: Path) -> None:
    """A file size limit of the process stands for the disk here; tests/faults fills a real one."""
    limited = ["sh", "-c", 'trap "" XFSZ; ulimit -f 100; exec "$@"', "sh", *empty.command]
    done = Device(empty.root, command=limited).run("receive", sha256, data=DATA)
    assert done.returncode == 7 and "File too large" in done.stderr and "Traceback" not in done.stderr
    here = empty.status()["incoming"][sha256]
    assert 0 < here < len(DATA)
    (answer,) = answers(empty.do("receive", sha256, "--offset", here, data=DATA[here:]))
    assert answer["stored"]
    assert subprocess.run(["cmp", empty.root / "store" / sha256, tmp_path / "file"], check=False).returncode == 0
