"""What the suites share: the tree they run, and a run of the smallest config that nothing disturbed."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.faults import tree as trees
from tests.faults.tree import NAME, SMALLEST, Tree


@dataclass(frozen=True)
class Undisturbed:
    """A finished run, its bundles' sha256, and how long each notebook took, seconds."""

    folder: Path
    bundles: dict[str, str]
    seconds: dict[str, float]


def pytest_configure(config: pytest.Config) -> None:
    """The marker stands here, beside what it means."""
    config.addinivalue_line("markers", "faults: twenty minutes of faults; run only with `-m faults`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the long suites unless `-m` names them."""
    if not re.search(r"\bfaults\b", config.option.markexpr):  # `defaults` is another suite
        long = [item for item in items if item.get_closest_marker("faults")]
        items[:] = [item for item in items if item not in long]
        if long:
            config.hook.pytest_deselected(items=long)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A copy of edgekit to run."""
    return trees.copy(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def undisturbed(tree: Tree, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """The smallest config's run; read by many tests, changed by none."""
    out = tmp_path_factory.mktemp("undisturbed")
    done = tree.run("run", SMALLEST, "--out", str(out))
    assert done.returncode == 0, done.stderr
    folder = out / NAME
    receipts = (folder / "notebooks").glob(".*.receipt.json")
    seconds = {path.name.split(".")[1]: json.loads(path.read_text())["seconds"] for path in receipts}
    return Undisturbed(folder, trees.bundles(folder), seconds)


@pytest.fixture(scope="session", autouse=True)
def count(request: pytest.FixtureRequest) -> dict[str, int]:
    """Totals of the suites, printed at the end of the session."""
    totals: dict[str, int] = {}
    request.config._edgekit_faults = totals  # type: ignore[attr-defined]
    return totals


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many faults were tried."""
    totals = getattr(config, "_edgekit_faults", {})
    if totals:
        summary = ", ".join(f"{number} {name}" for name, number in sorted(totals.items()))
        terminalreporter.write_line(f"faults tried: {summary}")
