"""Servers that send their spans soon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def soon() -> Iterator[None]:
    """Every 100 ms, not every 5 s: by OpenTelemetry's own variable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        yield
