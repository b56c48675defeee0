"""Commands of edgekit in a Python that shows them Windows or macOS; `startup/sitecustomize.py` says how far that goes.

What passes here can still fail on the real system. What fails here would fail there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SYSTEMS = ("windows", "macos")
ROOT = Path(__file__).parent.parent.parent
STARTUP = Path(__file__).parent / "startup"


def run(system: str, home: Path, *words: object, code: int = 0) -> str:
    """`python WORDS` on that system, for a user with this home; what it printed, its errors last.

    It must end with the exit code, without a traceback.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("XDG_CACHE_HOME", "PYTHONUTF8")}
    environment |= {"HOME": str(home), "EDGEKIT_IMITATE": system}
    environment["PYTHONPATH"] = os.pathsep.join([str(STARTUP), str(ROOT), os.environ.get("PYTHONPATH", "")])
    if system == "windows":
        environment |= {"PYTHONIOENCODING": "cp1252", "PYTHONWARNDEFAULTENCODING": "1"}
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        capture_output=True,
        cwd=home,
        env=environment,
        timeout=300,
        check=False,
    )
    output = (done.stdout + done.stderr).decode("cp1252" if system == "windows" else "utf-8")
    assert done.returncode == code, (done.returncode, output)
    assert "Traceback" not in output, output
    return output
