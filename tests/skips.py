"""A skipped test says why; in CI it fails, unless what it lacks cannot be there.

`CI=true` (set by .ci/run) asks for it. What may be lacking even there stands in MAY_LACK.
"""

from __future__ import annotations

import os
import re

import pytest

MAY_LACK = (
    r"tflite-runtime not installed",  # it wants numpy < 2; `make matrix` has it in environments of its own
    r"tflite-runtime \S+ has no wheel for this Python",
    r"x86 without VNNI",  # a fact of the processor
    r"this machine is \w+; the comparison is with x86-64",
    r"^no Python \S+ on the PATH or with pyenv",  # test_enough_pythons_are_here asks for most of them
    r"^Pillow is fetched beside litert alone",
    r"this ffmpeg was built without soxr",
    r"^cannot mount a tmpfs",  # only root may; the suite fails where root cannot
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    """Turn a skip for want of what CI should have into a failure."""
    report: pytest.TestReport = yield
    if report.skipped and not hasattr(report, "wasxfail") and os.environ.get("CI") == "true":
        reason = said(report)
        if not may_lack(reason):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} was skipped, and CI should have what it needs: {reason}"
    return report


def said(report: pytest.TestReport) -> str:
    """The reason of a skip."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def may_lack(reason: str) -> bool:
    """Whether a test may be skipped for this reason in CI too."""
    return any(re.search(pattern, reason) for pattern in MAY_LACK)
