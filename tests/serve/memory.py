"""How much memory a server's processes hold, and whether it grows."""

from __future__ import annotations

import re
from pathlib import Path


def pss_kb(process: int) -> int:
    """A process's own memory, and its share of what it shares."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    assert found, process
    return int(found[1])


def sockets(processes: list[int]) -> int:
    """How many sockets processes have open."""
    count = 0
    for process in processes:
        for place in Path(f"/proc/{process}/fd").iterdir():
            try:
                count += str(place.readlink()).startswith("socket:")
            except FileNotFoundError:  # it was closed while we looked
                continue
    return count
