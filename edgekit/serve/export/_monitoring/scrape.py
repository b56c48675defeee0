"""An example of Prometheus' own config, and the addresses in it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from edgekit.core.errors import ConfigError

DEFAULT = ("localhost:8002",)
"""Where `edgekit serve` has its second port."""
ADDRESS = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
MOST_PORT = 65535


def addresses(given: Sequence[str] | None) -> list[str]:
    """HOST:PORT of each server; ConfigError for anything else."""
    for each in given or ():
        found = ADDRESS.fullmatch(each)
        if not found or not 0 < int(found[2]) <= MOST_PORT:
            raise ConfigError(f"--scrape: got {each!r}; write HOST:PORT of the second port, such as {DEFAULT[0]}")
    return list(given or DEFAULT)


def config(targets: Sequence[str], rule_files: Sequence[str]) -> dict[str, Any]:
    """The whole file; alerts go nowhere until `alerting` names an Alertmanager."""
    job = {"job_name": "edgekit", "metrics_path": "/metrics", "static_configs": [{"targets": list(targets)}]}
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "1m"},
        "rule_files": list(rule_files),
        "scrape_configs": [job],
    }
