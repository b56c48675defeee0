"""Lines of the server's log, where standard error takes none."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys

import pytest

from edgekit.serve.log import unhandled, where
from tests.conftest import ROOT

CODE = """
import asyncio
import os
import re
from edgekit.serve.log import log
for text in ("one", "two"):
    log(text)
os.dup2(1, 2)
for text in ("three", "four"):
    log(text)
"""


def run_process(stderr: str, code: str = CODE) -> subprocess.CompletedProcess[str]:
    """What a process writes to its standard output; `stderr` is a redirection of the shell."""
    return subprocess.run(
        ["sh", "-c", f'exec "$0" -c "$1" {stderr}', sys.executable, code],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_lines_that_a_full_disk_did_not_take_are_counted_once_it_does() -> None:
    done = run_process("2>/dev/full")
    lost = "2 lines before this one could not be written: No space left on device"
    assert done.stdout.splitlines() == [lost, "edgekit serve: three", "edgekit serve: four"]
    assert done.returncode == 0


@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
def test_a_process_that_could_write_none_of_its_lines_ends_as_any(stderr: str) -> None:
    done = run_process(stderr, "from edgekit.serve.log import log\nlog('one')\nlog('two')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_line_stays_one_line() -> None:
    done = run_process("2>&1", "from edgekit.serve.log import log\nlog('a\\nb\\udcff')")
    assert done.stdout.count("\n") == 1
    assert done.stdout.startswith("edgekit serve: a")


def test_an_internal_error_names_its_places_from_the_innermost_and_nothing_that_a_client_sent() -> None:
    def inner() -> None:
        raise KeyError("a secret of the client")

    def deep(depth: int) -> None:
        inner() if depth == 0 else deep(depth - 1)

    with pytest.raises(KeyError) as caught:
        deep(100)
    text = where(caught.value)
    assert re.fullmatch(r"KeyError at serve/test_log\.py:\d+ inner(, from serve/test_log\.py:\d+ deep)+", text)
    assert len(text) < 500
    assert where(KeyError("secret")) == "KeyError"


def test_what_a_callback_raises_is_logged_without_its_message(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(argument: str) -> None:
        raise ValueError(argument)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(unhandled)
        loop.call_soon(fails, "a secret of the client")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(run())
    stderr = capfd.readouterr().err
    assert re.search(r"internal error: ValueError at serve/test_log\.py:\d+ fails", stderr)
    assert "secret" not in stderr and "Traceback" not in stderr
