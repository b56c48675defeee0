"""One alert as a rule of Prometheus, with what a person reads who is woken by it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgekit.core.errors import ConfigError

DOCS = "docs/how-to/alerts.md"
"""The page with a heading for each alert."""
PAGE, TICKET = "page", "ticket"
"""Severities: somebody is woken, or looks in the morning."""
THREE = 3
ADDRESS = re.compile(r"[!$%&()*+,./0-9:;=?@A-Z_a-z~-]+")
"""What a link may hold before its heading; braces would be a template of Prometheus."""


def address(given: str | None) -> str:
    """Of the page on alerts, the default where none is given; ConfigError for what is none."""
    if given is not None and not ADDRESS.fullmatch(given):
        raise ConfigError(
            f"--docs: got {given!r}; write the page's address without a heading, such as https://HOST/alerts"
        )
    return given or DOCS


@dataclass(frozen=True)
class Alert:
    """`hold` is how long the expression must be true; `look_at` are the first three things to look at, in order."""

    name: str
    severity: str
    expression: str
    hold: str
    summary: str
    description: str
    look_at: tuple[str, str, str]
    labels: Mapping[str, str] = field(default_factory=dict)

    def rule(self, docs: str) -> dict[str, Any]:
        """As Prometheus reads it; `docs` is the address of the page."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": self.hold} if self.hold else {}),
            "labels": {"severity": self.severity, **self.labels},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "look_at": "\n".join(f"{place}. {each}" for place, each in enumerate(self.look_at, 1)),
                "runbook_url": f"{docs}#{self.name.lower()}",
            },
        }
