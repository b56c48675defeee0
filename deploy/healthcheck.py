"""Ends with 0 where the server says that it is ready, else with 1 and a line. The image's HEALTHCHECK."""

from __future__ import annotations

import sys
import urllib.request
from http.client import HTTPException

URL = "http://127.0.0.1:8000/v2/health/ready"
TIMEOUT_S = 2


def main(url: str = URL) -> int:
    """Exit code. A proxy that the environment names is not asked: the server is in here."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S):
            return 0
    except (OSError, HTTPException) as error:
        print(f"not ready: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
