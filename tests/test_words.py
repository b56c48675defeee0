"""Names that a newcomer would search for: private words do not come back as names of modules, functions or classes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.core.floors import FLOORS

PACKAGE = Path(__file__).parent.parent / "edgekit"
ROOMS = [room for floor in FLOORS for room in floor]
"""Packages of edgekit that use the field's words throughout."""

MODULES = {
    "alike": "similarity",
    "answers": "teacher_cache",
    "as_they_come": "runtimes",
    "child": "worker or subprocesses",
    "chosen": "from_artifact",
    "debris": "redundant_ops",
    "digests": "hashing",
    "exits": "exit_codes",
    "fits": "task_fit",
    "folded": "fold_batchnorm",
    "foretold": "predicted",
    "found": "findings",
    "given": "model_file",
    "handover": "from_artifact",
    "in_float": "float_ops",
    "judge": "evaluate",
    "keys": "cache_key",
    "kinds": "detect",
    "look": "detect",
    "looks": "file_type",
    "mangled": "diagnose",
    "materials": "sbom",
    "openings": "re-opened instances",
    "paired": "accuracy_drop",
    "parting": "locate",
    "peek": "inspect",
    "preview": "dry_run",
    "quiet": "native_stderr",
    "raised": "user_errors",
    "reach": "compatibility",
    "recorded": "activations",
    "spent": "time_breakdown",
    "teaching": "objective",
    "trial": "autotune",
    "tried": "dry_run",
    "unfinished": "resume",
}
"""Names of modules and folders that say nothing outside this project, and what the field calls such a thing."""

STANDARD = ("search/trial.py",)
"""Modules for which such a name is the field's own: what a study asks is a trial, in Optuna and elsewhere."""

FUNCTIONS = {
    "told": "describe, to_rows or build_…",
    "hears": "on_progress",
    "looks": "file_type",
    "peek": "inspect",
    "judge": "evaluate",
    "judged": "evaluated",
    "recall": "get",
    "remember": "put",
    "settle": "recover",
    "ingredients": "cache_inputs",
    "again": "finished_lines or re-run",
    "as_it_came": "unmodified",
    "foretold": "predicted",
    "taught": "train_with_loss",
    "wishes": "request or options",
    "at_the_right": "label_curve_ends",
    "bill": "build_sbom",
    "folded": "fold_batchnorms",
    "give_each_its_own": "unshare",
    "grew": "memory_growth",
    "lent": "share_with_validation",
    "narrowed": "clip_ranges",
    "one_each": "check_ends",
    "united": "connected_components",
}
CLASSES = {
    "Answers": "TeacherCache",
    "Broken": "Breakdown",
    "Departure": "Divergence",
    "Foretold": "PredictedSpeedup",
    "Given": "ModelFile",
    "Hinted": "FeatureObjective",
    "Ingredients": "CacheInputs",
    "Judged": "CheckedVariant",
    "Lesson": "Distillation",
    "Likeness": "Similarity",
    "Mangled": "BadArchive",
    "Parted": "Located",
    "Taught": "LogitObjective",
    "TaughtAhead": "PrecomputedLogits",
    "Told": "a noun",
    "Unfinished": "ResumeFolder",
    "Wishes": "Request",
    "Words": "SubjectSpec",
}
PROSE = {
    "debris": "redundant operators",
    "hears?": "is called with",
    "mangled": "damaged",
    "parting": "divergence",
    "as it came": "unmodified",
    "as they come": "as shipped",
}
"""Words of docstrings and comments; names and keys of files may still have them."""


def definitions(path: Path) -> Iterator[tuple[str, str]]:
    """(kind, name) of each function and class in a file, methods included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield "function", node.name.strip("_")
        elif isinstance(node, ast.ClassDef):
            yield "class", node.name.strip("_")


def docstrings(path: Path) -> Iterator[str]:
    """Each docstring of a file, of constants and fields too, without the code in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield re.sub(r"`[^`]*`", "", " ".join(node.value.value.split()))


def private_names(path: Path) -> list[str]:
    """A line for each private word among the names that a file has or defines."""
    named = path.stem in MODULES and path.relative_to(PACKAGE).as_posix() not in STANDARD
    found = [f"module {path.stem}: say {MODULES[path.stem]}"] if named else []
    for kind, name in definitions(path):
        known = CLASSES if kind == "class" else FUNCTIONS
        if name in known:
            found.append(f"{kind} {name}: say {known[name]}")
    return found


def private_prose(path: Path) -> list[str]:
    """A line for each private word in the docstrings of a file."""
    return [
        f"{word}: say {better}; in {text[:80]!r}"
        for text in docstrings(path)
        for word, better in PROSE.items()
        if re.search(rf"\b{word}\b", text.lower())
    ]


def files(room: str) -> list[Path]:
    """The modules of a room."""
    return sorted((PACKAGE / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_names_are_the_fields_own(room: str) -> None:
    found = {path.relative_to(PACKAGE).as_posix(): names for path in files(room) if (names := private_names(path))}
    assert found == {}
    folders = {path.name for path in (PACKAGE / room).rglob("*") if path.is_dir()}
    assert not folders & MODULES.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_docstrings_use_the_fields_words(room: str) -> None:
    found = {path.relative_to(PACKAGE).as_posix(): lines for path in files(room) if (lines := private_prose(path))}
    assert found == {}


def test_private_words_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "raised.py"
    path.write_text('class Lesson:\n    """As it came."""\n\n    def _told(self) -> str:\n        return ""\n')
    assert [line.partition(":")[0] for line in private_names(path)] == [
        "module raised", "class Lesson", "function told"
    ]  # fmt: skip
    assert [line.partition(":")[0] for line in private_prose(path)] == ["as it came"]
