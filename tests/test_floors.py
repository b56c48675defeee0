"""The house: imports only ever point down, stages never import one another, and light things stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "edgekit"
FLOORS = {
    "runner": 0,
    "config": 1, "errors": 1, "artifact": 1, "data": 1, "checks": 1, "plots": 1, "tables": 1, "summaries": 1,
    "variants": 1, "paired": 1, "rejected": 1, "quiet": 1, "digests": 1, "keys": 1, "replay": 1, "lock": 1,
    "looks": 1, "left_out": 1, "child": 1, "telemetry": 1, "faults": 1, "forecast": 1, "tasks": 1,
    "models": 2, "sources": 2, "losses": 2, "train": 2, "augment": 2, "eager": 2, "eager_session": 2, "teachers": 2,
    "targets": 2, "batches": 2, "teaching": 2, "judge": 2, "answers": 2, "checkpoint": 2, "unfinished": 2,
    "load": 2,
    "stages": 3,
    "config_file": 4, "plan": 4, "origin": 4, "receipts": 4, "state": 4, "status": 4, "workbook": 4, "execution": 4,
    "kernel": 4, "run": 4, "result": 4, "result_schema": 4, "result_decisions": 4, "result_loads": 4,
    "result_by_class": 4, "verdict": 4, "aside": 4,
    "result_conditions": 4,
    "report": 4, "page": 4, "finished": 4, "compare": 4, "tracking": 4, "preview": 4, "reproduce": 4, "ready_made": 4,
    "cli": 4, "exits": 4, "help": 4, "attempts": 4, "early": 4, "early_child": 4, "init": 4, "__main__": 4,
}  # fmt: skip
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
RUNNER_MAY_USE = {"numpy", "PIL", "edgekit", "_sha2", "_sha256"}  # the last two are Python's own, each of some versions
INTERPRETERS = {
    "litert": {"ai_edge_litert"},
    "tflite_runtime": {"tflite_runtime"},
    "openvino": {"openvino"},
    "onnxruntime": {"onnxruntime"},
    "tensorflow": {"tensorflow"},
}


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor(dotted: str) -> int | None:
    parts = dotted.split(".")
    if parts[0] != "edgekit" or len(parts) < 2 or parts[1] == "__version__":
        return None
    return FLOORS[parts[1]]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path: Path) -> None:
    own = FLOORS[path.relative_to(PACKAGE).parts[0].removesuffix(".py")]
    for name in imported(path):
        below = floor(name)
        assert below is None or below <= own, f"{path.name} on floor {own} imports {name} on floor {below}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "stages").rglob("*.py")), ids=lambda path: "/".join(path.parts[-2:]))
def test_stages_never_import_one_another(path: Path) -> None:
    own = path.relative_to(PACKAGE / "stages").parts[0]
    for name in imported(path):
        parts = name.split(".")
        if parts[:2] == ["edgekit", "stages"] and len(parts) > 2:
            assert parts[2] == own, f"{path} imports {name}"


@pytest.mark.parametrize("path", sorted((PACKAGE / "runner").rglob("*.py")), ids=lambda path: "/".join(path.parts[-2:]))
def test_the_runner_needs_numpy_and_one_interpreter(path: Path) -> None:
    allowed = RUNNER_MAY_USE | set(sys.stdlib_module_names) | INTERPRETERS.get(path.stem, set())
    foreign = {name.split(".")[0] for name in imported(path)} - allowed
    assert not foreign, f"{path.name} imports {foreign}"


def test_no_module_is_a_pickle_user() -> None:
    for path in MODULES:
        used = {name.split(".")[0] for name in imported(path)} & {"pickle", "joblib", "dill", "cloudpickle"}
        assert not used, f"{path} imports {used}"


@pytest.mark.parametrize(
    ("imports", "never"),
    [
        (
            "edgekit.cli",
            {
                "torch",
                "tensorflow",
                "openvino",
                "sklearn",
                "matplotlib",
                "papermill",
                "nncf",
                "PIL",
                "jinja2",
                "mlflow",
            },
        ),
        ("edgekit.runner", {"numpy", "PIL", "pydantic"}),
    ],
)
def test_importing_is_light(imports: str, never: set[str]) -> None:
    code = f"import sys, {imports}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & never


def test_modules_stay_readable() -> None:
    long = {path.name: len(path.read_text().splitlines()) for path in MODULES if path.read_text().count("\n") > 300}
    assert not long, f"over 300 lines; what are their two halves called? {long}"
