"""The HEALTHCHECK of the image: exits with 0 if the server is ready, otherwise with 1 and a line on stderr."""

from __future__ import annotations

import sys
import urllib.request
from http.client import HTTPException

URL = "http://127.0.0.1:8000/v2/health/ready"
TIMEOUT_S = 2


def main(url: str = URL) -> int:
    """Ask the local server, ignoring proxies that the environment names, and return the exit code."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_S):
            return 0
    except (OSError, HTTPException) as error:
        print(f"not ready: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
