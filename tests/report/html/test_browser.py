"""The browser of the tests leaves nothing behind, however it ends."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.report.html import browser
from tests.report.html.browser import Browser

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


def test_what_does_not_end_is_killed() -> None:
    deaf = subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE)
    assert deaf.stdout
    with deaf.stdout as text:
        assert text.readline() == b"deaf\n"
        browser.end(deaf, patience_s=0.2)
    assert deaf.returncode == -9


def test_a_browser_that_opens_no_port_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "mute"
    program.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    program.chmod(0o755)
    monkeypatch.setattr(browser, "START_S", 1.0)
    with pytest.raises(AssertionError, match="opened no port within 1 s"):
        Browser.start(str(program), tmp_path)
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()
