"""Lines on stderr: none is torn by another thread's."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

from tests.conftest import ROOT

CODE = """
import sys, threading
from edgekit.core.progress import write_named_to_stderr, write_to_stderr

def lines(name):
    for _ in range(300):
        write_named_to_stderr(name, "a line")
        write_to_stderr(f"edgekit: {name}: one\\ntwo")

sys.setswitchinterval(1e-6)  # threads take turns between any two calls
threads = [threading.Thread(target=lines, args=(name,)) for name in "abcdefgh"]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_lines_of_eight_threads_stay_whole() -> None:
    ended = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True)
    counted = Counter(ended.stderr.splitlines())
    expected = {f"{name} · a line": 300 for name in "abcdefgh"} | {f"edgekit: {name}: one": 300 for name in "abcdefgh"}
    assert counted == expected | {"two": 8 * 300}
    assert ended.stderr.count("one\ntwo\n") == 8 * 300  # what is written at once stays together
