"""A machine of its own for a command: its /var/lib and /etc, the user that runs it, and a disk that takes nothing."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import requirements
from tests.conftest import ROOT

NOBODY, NAMELESS = 65534, 54321
"""A user of /etc/passwd, and one that is not in it."""
ETC = ("passwd", "group", "nsswitch.conf", "ld.so.cache", "localtime")
COMMAND = (sys.executable, "-m", "edgekit.runner")


@dataclass(frozen=True)
class Machine:
    """`folder` has its `lib` and `etc`; a command sees it all as /mnt."""

    folder: Path

    @property
    def home(self) -> Path:
        """What a command sees as /var/lib/edge."""
        return self.folder / "lib" / "edge"

    def state(self, line: str) -> Path:
        """Write /etc/edge/trust."""
        path = self.folder / "etc" / "edge" / "trust"
        path.parent.mkdir(exist_ok=True)
        path.write_text(line)
        path.chmod(0o644)
        return path

    def run(
        self,
        *words: object,
        user: int = 0,
        read_only: bool = False,
        strict: bool = False,
        command: Sequence[str] = COMMAND,
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        """A command to its end. `more` is environment.

        `read_only` is /var/lib/edge, as after an error of the card. `strict` is systemd's ProtectSystem=strict with
        PrivateTmp=yes: nothing but /var/lib/edge, /tmp and /dev can be written.
        """
        lines = ["set -e", *self._reach(), f"mount --bind {shlex.quote(str(self.folder))} /mnt"]
        lines += ["mount --bind /mnt/lib /var/lib", "mount --bind /mnt/etc /etc", "cd /mnt"]
        if read_only or strict:
            lines += ["mount --bind /var/lib/edge /var/lib/edge"]
        if strict:
            lines += [f"mount -o remount,bind,ro {each}" for each in ("/", "/mnt", "/var/lib", "/etc")]
            lines += ["mount -t tmpfs -o mode=1777 none /tmp"]
        if read_only:
            lines += ["mount -o remount,bind,ro /var/lib/edge"]
        become = f"setpriv --reuid={user} --regid={user} --clear-groups " if user else ""
        lines.append(f'exec {become}"$@"')
        environment = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent", **more}
        return subprocess.run(
            [*requirements.mount(), "sh", "-c", "\n".join(lines), "sh", *command, *map(str, words)],
            capture_output=True, text=True, check=False, timeout=120, env={"PATH": os.environ["PATH"], **environment},
        )  # fmt: skip

    def do(self, *words: object, **how: object) -> str:
        """What a command prints that must succeed."""
        done = self.run(*words, **how)  # type: ignore[arg-type]
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def refused(self, *words: object, code: int = 8, **how: object) -> str:
        """The one line of a command that must fail so, and prints nothing."""
        done = self.run(*words, **how)  # type: ignore[arg-type]
        assert (done.returncode, done.stdout) == (code, ""), (words, done.stdout, done.stderr)
        assert done.stderr.startswith("edgerun: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def _reach(self) -> list[str]:
        """What lets other users reach this Python and this repository, where they lie in a folder of root's."""
        closed: dict[Path, list[Path]] = {}
        for path in {Path(sys.base_prefix).resolve(), Path(sys.prefix), ROOT}:
            above = [each for each in reversed(path.parents) if not each.stat().st_mode & 0o001]
            if above:
                closed.setdefault(above[0], []).append(path)
        lines = []
        for number, (root, paths) in enumerate(closed.items()):
            for place, path in enumerate(paths):
                held = self.folder / f"held-{number}-{place}"
                lines += [f"mkdir -p {held}", f"mount --bind {path} {held}"]
            lines.append(f"mount -t tmpfs -o mode=755 none {root}")
            for place, path in enumerate(paths):
                lines += [f"mkdir -p {path}", f"mount --bind {self.folder / f'held-{number}-{place}'} {path}"]
        return lines


def make(folder: Path) -> Machine:
    """One on which nothing was ever received; a skip where that needs a right or a program that is missing."""
    requirements.root()
    requirements.program("setpriv")
    (folder / "lib").mkdir(parents=True)
    (folder / "etc").mkdir()
    folder.chmod(0o755)
    for name in ETC:
        if (Path("/etc") / name).exists():
            shutil.copy(Path("/etc") / name, folder / "etc" / name)
    return Machine(folder)
