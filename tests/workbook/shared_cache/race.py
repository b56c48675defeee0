"""Run as a program: N processes at once push another result under one key; prints what became of each, as JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from edgekit.core.errors import TrustError
from edgekit.workbook.shared_cache import entry, open_cache
from tests.workbook.shared_cache.stages import seal


def main(url: str, home: Path, writers: int) -> None:
    """Fork, let all begin at the same moment, and collect."""
    entry.machine_facts("bits")
    began, begin = os.pipe()
    results = []
    for number in range(writers):
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(begin)
            artifact = seal(home / str(number), weights=str(number).encode())
            lines: list[str] = []
            cache = open_cache(url, lines.append)
            os.read(began, 1)  # until all are there
            try:
                cache.push(artifact, home / str(number))
                how = "given" if cache.pushed and not lines else f"not given: {lines}"
            except TrustError:
                how = "alarm"
            os.write(write, json.dumps({"digest": artifact.digest, "key": artifact.key, "how": how}).encode())
            os._exit(0)
        os.close(write)
        results.append(read)
    os.close(began)
    os.close(begin)
    print(json.dumps([json.loads(os.read(each, 1 << 16)) for each in results]))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
