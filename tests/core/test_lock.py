"""The lock of a run: one holder, named to whoever comes second, free as soon as its process is gone."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edgekit.core.errors import ResourceError
from edgekit.core.lock import hold

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


def test_the_second_is_told_who_the_first_is(tmp_path: Path, other: subprocess.Popen[str]) -> None:
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
