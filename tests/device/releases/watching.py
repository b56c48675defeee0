"""`edgerun watch` as a process, and what it and its program do."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.device.releases.device import Device

PATIENCE_S = 90.0
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
path = Path(os.environ["EDGERUN_HOME"], "program")
path.with_name("program.new").write_text(f"{os.environ['EDGERUN_RELEASE']} {os.getpid()} {sys.argv[1:]}")
path.with_name("program.new").rename(path)  # whoever reads it finds all of it
time.sleep(600)
"""


class Watch:
    """`edgerun watch` as a process."""

    def __init__(self, on: Device, *words: object, **more: str) -> None:
        self.device = on
        self.output_file = open(on.root.with_name("output"), "a+")  # noqa: SIM115  (closed by `stop`)
        self.process = subprocess.Popen(
            [*on.command, "watch", *map(str, words)],
            env=on.variables(**more),
            stdout=self.output_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whoever runs these tests may ignore it
        )

    @property
    def output(self) -> str:
        return self.device.root.with_name("output").read_text()

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until this is true; fail with the output if it never is."""
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)

    def program(self) -> list[str]:
        """Release, process number and words of the program that runs, as it says itself."""
        path = self.device.root / "program"
        return path.read_text().split(maxsplit=2) if path.exists() else ["", "", ""]

    def stop(self, by: int = signal.SIGTERM) -> int:
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        code = self.process.wait(PATIENCE_S)
        self.output_file.close()
        return code


def state(on: Device) -> tuple[str, int]:
    found = on.status()
    return found["state"], found["current"]


def alive(number: str) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
