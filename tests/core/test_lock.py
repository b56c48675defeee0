"""The lock of a run: one holder, named to whoever comes second, free as soon as its process is gone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from edgekit.core.errors import ResourceError
from edgekit.core.lock import current_holder, hold
from tests import requirements

HOLDER = """
    import sys, time
    from pathlib import Path
    from edgekit.core.lock import hold
    with hold(Path(sys.argv[1]), "edgekit run other.yaml"):
        print("held", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def other(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Another process that holds the lock."""
    command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_error_of_the_second_names_the_first(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    with pytest.raises(ResourceError) as caught, hold(tmp_path / ".lock", "edgekit run mine.yaml"):
        pass
    assert "in use by `edgekit run other.yaml`" in str(caught.value)
    assert f"process {other.pid} on " in str(caught.value)


def test_a_killed_holder_holds_nothing(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    with hold(tmp_path / ".lock", "edgekit run mine.yaml", wait_s=5):
        pass


def test_it_is_given_back_when_the_body_fails(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path / ".lock", "first"):
        raise ZeroDivisionError
    with hold(tmp_path / ".lock", "second"):
        pass


def test_a_folder_that_cannot_be_made_is_a_resource_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResourceError, match="cannot be locked"), hold(tmp_path / "file" / "run" / ".lock", "me"):
        pass


def test_looking_takes_nothing_from_who_comes(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    """`edgekit status` in a loop, where a killed run has left its name: nobody is refused, and nobody is named."""
    assert (current_holder(tmp_path / ".lock") or {})["process"] == other.pid
    other.kill()
    other.wait()
    name = (tmp_path / ".lock.holder").read_text()
    done, named = threading.Event(), []

    def look() -> None:
        while not done.is_set():
            found = current_holder(tmp_path / ".lock")
            named.append(found and found["who"])

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(200):
            with hold(tmp_path / ".lock", "mine"):
                pass
            (tmp_path / ".lock.holder").write_text(name)
    finally:
        done.set()
        for looker in lookers:
            looker.join()
    assert None in named and len(named) > 200


def test_two_who_look_at_once_see_no_holder(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    import fcntl

    other.kill()
    other.wait()
    with (tmp_path / ".lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        assert current_holder(tmp_path / ".lock") is None


READ_ONLY = """
    import os, subprocess, sys
    from pathlib import Path
    from edgekit.runner.files import write_atomically
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)
    real = os.replace
    def replace(*paths):
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        real(*paths)
    os.replace = replace
    try:
        write_atomically(folder / "file", b"data")
    except OSError as error:
        print(error.filename2)
"""


def test_a_holders_name_that_cannot_be_removed_hides_no_error_and_keeps_no_lock(tmp_path: Path) -> None:
    """As on a disk that has become read-only; a folder of that name is as hard to remove."""
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), hold(tmp_path / ".lock", "me"):
            (tmp_path / ".lock.holder").unlink(missing_ok=True)
            (tmp_path / ".lock.holder").mkdir()
            raise ZeroDivisionError
        (tmp_path / ".lock.holder").rmdir()


def test_nor_does_a_file_that_was_being_written(tmp_path: Path) -> None:
    command = [*requirements.mount(), sys.executable, "-c", textwrap.dedent(READ_ONLY), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{tmp_path / 'file'}\n", done.stderr
