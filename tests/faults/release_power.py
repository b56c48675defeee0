"""Power cuts while a device's releases change: `python -m tests.faults.release_power ROOT BUNDLE BUNDLE BUNDLE`.

Each attempt is a fork that plays a command in this process and loses the power at its n-th operation. It leaves what a
disk may hold then, see `disk.py`. Any command of the device must put that right. This process has one thread, see
`small.py`. It prints [power cuts, what went wrong] as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgekit.device.releases import records
from edgekit.runner.cli import main
from tests.device.releases.device import Device, digest
from tests.faults.disk import Disk


def attempt(root: Path, home: Path, words: list[str], last: int, chance: random.Random | None) -> bool:
    """One command; False where it came to its end before its `last` operation. The power is cut in both cases."""
    shutil.rmtree(root / "shadow", ignore_errors=True)
    child = os.fork()
    if not child:
        try:
            cut: Callable[[], None] = lambda: disk.image(root / "image", chance)  # noqa: E731

            def before(number: int, name: str, path: Path, half: Any) -> None:
                if number >= last:
                    with disk.aside():
                        cut()
                    os.kill(os.getpid(), signal.SIGKILL)

            disk = Disk(home, root / "shadow", before)
            log = os.open(root / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            disk.install()
            os.dup2(log, 1)
            os.dup2(log, 2)
            if words[0] == "receive":
                os.dup2(os.open(words.pop(), os.O_RDONLY), 0)
            main([*words, "--home", str(home)])
            disk.image(root / "image", chance)
        finally:
            os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    shutil.rmtree(home)
    os.rename(root / "image", home)
    home.chmod(0o700)
    return killed


def wrong(device: Device) -> str:
    """What is wrong behind a power cut; empty: nothing."""
    found = device.run("boot")
    if found.returncode:
        return found.stderr
    if records.current_number(device.home) is None:
        return "no release is current"
    return device.fault()


def everything(root: Path, bundles: list[Path]) -> tuple[int, list[str]]:
    """Power cuts tried, and what went wrong; each command begins with two confirmed releases and a third bundle."""
    first, second, third = bundles
    begin = Device(root / "begin")
    for path in (first, second):
        begin.confirmed(path)
    trying = Device(root / "trying")
    shutil.copytree(begin.root, trying.root, symlinks=True)
    trying.install(third, "--tries", 1)
    spent = Device(root / "spent")
    shutil.copytree(trying.root, spent.root, symlinks=True)
    spent.do("boot")
    begin.receive(third)
    commands = [
        (begin, ["install", digest(third)]),
        (begin, ["rollback"]),
        (begin, ["gc", "--keep", "0"]),
        (begin, ["receive", digest(root / "sent"), str(root / "sent")]),
        (trying, ["boot"]),
        (trying, ["confirm"]),
        (trying, ["rollback"]),
        (spent, ["boot"]),
    ]
    home, cuts, faults = root / "home", 0, []
    for start, words in commands:
        for chance in (None, random.Random(22)):
            for last in range(1, 200):
                shutil.rmtree(home, ignore_errors=True)
                shutil.copytree(start.root, home, symlinks=True)
                killed = attempt(root, home, list(words), last, chance)
                cuts += 1
                if fault := wrong(Device(home)):
                    faults.append(f"{words[0]}, operation {last}: {fault}")
                if not killed:
                    break
    return cuts, faults


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir()
    (place / "sent").write_bytes(bytes(range(256)) * 300)
    print(json.dumps(everything(place, [Path(each) for each in sys.argv[2:]])))
