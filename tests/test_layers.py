"""The house: imports only ever point down, stages never import one another, and light things stay light."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

LAYERS = (
    ("runner",),
    ("device",),
    ("core",),
    ("data",),
    ("models",),
    ("targets", "training"),
    ("fleet", "measure"),
    ("stages",),
    ("report",),
    ("serve", "workbook"),
    ("search",),
    ("cli",),
)
"""Packages of edgekit from bottom to top; those of one layer never import one another."""
PACKAGE = Path(__file__).parent.parent / "edgekit"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")
RUNNER_MAY_USE = {
    "numpy",
    "PIL",
    "tokenizers",
    "edgekit",
    "_sha2",
    "_sha256",
}  # the last two are Python's own, each of some versions
INTERPRETERS = {
    "tflite": {"ai_edge_litert", "tflite_runtime", "tensorflow"},
    "openvino": {"openvino"},
    "onnxruntime": {"onnxruntime"},
}
LIVE = {"mqtt": {"paho"}, "gpio": {"gpiozero"}, "rpicam": {"picamera2"}, "config": {"yaml"}}
"""What a source or sink of `edgerun live` may use where it is installed, by the name of its file."""


def below(package: str) -> tuple[str, ...]:
    """Every package that `package` may import, from the ground up."""
    layer = next(number for number, packages in enumerate(LAYERS) if package in packages)
    return tuple(name for packages in LAYERS[:layer] for name in packages)


@functools.cache
def imported(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, wherever in the file it does so."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module_of(dotted: str) -> Path | None:
    """The file of `edgekit.a.b`, be `b` a module or something in one; None where it is not edgekit's."""
    parts = dotted.split(".")
    if parts[0] != "edgekit":
        return None
    for end in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[1:end])
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


@functools.cache
def graph() -> dict[Path, set[Path]]:
    """Which file of edgekit imports which, lazily and for typing too; packages stand for their `__init__.py`."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {path: {found for name in imported(path) if (found := module_of(name))} - {path} for path in files}


def circles(arrows: Mapping[Path, set[Path]]) -> list[list[Path]]:
    """Every circle of files that import one another; nothing where one can be sorted behind what it imports."""
    waiting = {path: set(below) for path, below in arrows.items()}
    while free := [path for path, below in waiting.items() if not below & waiting.keys()]:
        for path in free:
            del waiting[path]
    return [sorted(waiting)] if waiting else []


def test_the_layers_name_every_folder() -> None:
    named = [package for layer in LAYERS for package in layer]
    there = sorted(path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").is_file())
    assert sorted(named) == there


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path: Path) -> None:
    package = path.relative_to(PACKAGE).parts[0]
    if package == "__main__.py":
        return
    allowed = {*below(package), package, "__init__.py"}
    for name in imported(path):
        found = module_of(name)
        above = found.relative_to(PACKAGE).parts[0] if found else None
        assert above is None or above in allowed, f"{path} of {package} imports {name}"


def test_no_file_imports_itself_by_a_detour() -> None:
    assert circles(graph()) == []


@pytest.mark.parametrize(
    "folder",
    [PACKAGE, *sorted(path for path in PACKAGE.rglob("*") if (path / "__init__.py").is_file())],
    ids=lambda path: path.relative_to(PACKAGE.parent).as_posix(),
)
def test_no_circle_between_what_a_folder_holds(folder: Path) -> None:
    """Its files, and its folders as one each."""

    def entry(path: Path) -> Path | None:
        return folder / path.relative_to(folder).parts[0] if path.is_relative_to(folder) else None

    arrows: dict[Path, set[Path]] = {}
    for path, below in graph().items():
        if own := entry(path):
            arrows.setdefault(own, set()).update({other for each in below if (other := entry(each))} - {own})
    assert circles(arrows) == []


def test_a_circle_is_found() -> None:
    a, b, c = (Path(name) for name in "abc")
    assert circles({a: {b}, b: {c}, c: {a}}) == [[a, b, c]]
    assert circles({a: {b, c}, b: {c}, c: set()}) == []


@pytest.mark.parametrize("path", sorted((PACKAGE / "stages").rglob("*.py")), ids=lambda path: "/".join(path.parts[-2:]))
def test_stages_never_import_one_another(path: Path) -> None:
    own = path.relative_to(PACKAGE / "stages").parts[0]
    for name in imported(path):
        parts = name.split(".")
        if parts[:2] == ["edgekit", "stages"] and len(parts) > 2:
            assert parts[2] == own, f"{path} imports {name}"


@pytest.mark.parametrize(
    "path",
    sorted(path for part in ("runner", "device") for path in (PACKAGE / part).rglob("*.py")),
    ids=lambda path: "/".join(path.parts[-3:]),
)
def test_the_runner_needs_numpy_and_one_interpreter(path: Path) -> None:
    allowed = RUNNER_MAY_USE | set(sys.stdlib_module_names) | INTERPRETERS.get(path.stem, set())
    allowed |= LIVE.get(path.stem, set()) if "live" in path.parts else set()
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
            "edgekit.cli.app",
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
        ("edgekit.runner", {"numpy", "PIL", "pydantic", "tokenizers"}),
    ],
)
def test_importing_is_light(imports: str, never: set[str]) -> None:
    code = f"import sys, {imports}; print(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & never
