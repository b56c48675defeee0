"""Kills and power cuts on an artifact of two small files: `python -m tests.faults.small ROOT [STEP]`.

Each attempt is a fork that dies, with or without the power, at its n-th operation; the next one goes on from what that
left. STEP takes away one of the steps that make it safe. This process has one thread: a fork beside another thread may
wait forever for a lock that the thread held. It prints [kills, what went wrong] as JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from edgekit.core import artifacts
from edgekit.core.hashing import write_json
from edgekit.runner.files import make_folder
from tests.faults import spoil
from tests.faults.disk import Disk


def work(folder: Path, version: int) -> None:
    """What a stage does: recover, work aside, seal, publish; and a file beside it that is replaced."""
    final, working = folder / "prune", folder / ".prune.partial"
    make_folder(folder)
    write_json(folder / "note.json", {"version": version, "padding": "x" * 9000})
    artifacts.recover(working, final, None)
    artifacts.begin(working)
    write_json(working / "weights.json", [version] * 100)
    (working / "native.bin").write_bytes(bytes([version]) * 5000)  # not synced by its writer
    artifacts.seal(working, stage="prune", source=None, data_digest="d", config={"v": version}, metrics={})
    artifacts.publish(working, final)
    print(f"published {version}", flush=True)


def attempt(root: Path, folder: Path, version: int, last: int, power: random.Random | bool, without: str) -> bool:
    """One process; False where it came to its end before its `last` operation."""
    shutil.rmtree(root / "shadow", ignore_errors=True)
    child = os.fork()
    if not child:
        try:

            def before(number: int, name: str, path: Path, half: Any) -> None:
                if number < last:
                    return
                with disk.aside():
                    if power:
                        disk.image(root / "image", power if isinstance(power, random.Random) else None)
                    else:
                        half()
                os.kill(os.getpid(), signal.SIGKILL)

            disk = Disk(folder, root / "shadow", before)
            disk.install()
            spoil.apply(without)
            with open(root.with_suffix(".output"), "w") as output:
                os.dup2(output.fileno(), 1)
            work(folder, version)
            disk.image(root / "image", None)
        finally:
            os._exit(0)
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    if (root / "image").exists():
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(root / "image", folder)
    return killed


def wrong(folder: Path, output: str) -> list[str]:
    """What must not be: a lost or half artifact, half a file."""
    final = folder / "prune"
    places = [
        path for path in (final, folder / ".prune.partial", folder / ".prune.previous") if artifacts.is_intact(path)
    ]
    found = []
    if final.exists() and final not in places:
        found.append("prune/ is there and not whole")
    if not places:
        found.append("the earlier artifact is lost")
    if "published" in output and final not in places:
        found.append("a published artifact is lost")
    try:
        json.loads((folder / "note.json").read_text()) if (folder / "note.json").exists() else None
    except ValueError:
        found.append("note.json is half written")
    return found


def everything(root: Path, without: str = "") -> tuple[int, list[str]]:
    """Kills tried and what went wrong while a second version takes the place of a first; ends at the first fault."""
    root.mkdir()
    folder, first, chance = root / "run", root / "first", random.Random(7)
    work(first, 1)
    kills = 0
    for power in (False, True, chance):
        for last in range(1, 200):
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(first, folder)
            killed = attempt(root, folder, 2, last, power, without)
            found = wrong(folder, root.with_suffix(".output").read_text())
            found += after(root, folder) if killed and not without else []
            if found:
                return kills, [f"operation {last}: {each}" for each in found]
            if not killed:
                break
            kills += 1
    return kills, []


def after(root: Path, folder: Path) -> list[str]:
    """The next run comes to its end; it too ends with a power cut, so what it removed may be back."""
    attempt(root, folder, 2, 10_000, False, "")
    left = {path.name for path in folder.iterdir() if not path.name.endswith(".tmp")}
    good = artifacts.is_intact(folder / "prune") and artifacts.load(folder / "prune").config["v"] == 2
    return [] if good and left <= {"prune", "note.json", ".prune.previous"} else [f"the next run left {sorted(left)}"]


if __name__ == "__main__":
    print(json.dumps(everything(Path(sys.argv[1]), *sys.argv[2:])))
