"""What nests without end is refused in words, also after a converter has raised Python's limit: no stack overflows."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCES = sorted((Path(__file__).parent.parent / "edgekit").rglob("*.py"))
PARSERS = {"json.loads", "json.load", "yaml.safe_load"}
GUARD = "bounded_recursion"


def unguarded(source: str) -> list[int]:
    """Lines that parse what may nest without end, below `except RecursionError` and outside `bounded_recursion`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try) and any(
            "RecursionError" in ast.unparse(each.type or node) for each in node.handlers
        ):
            found += [line for each in node.body for line in _lines(each)]
    return found


def _lines(node: ast.AST) -> list[int]:
    if isinstance(node, ast.With) and any(GUARD in ast.unparse(item.context_expr) for item in node.items):
        return []
    own = [node.lineno] if isinstance(node, ast.Call) and ast.unparse(node.func) in PARSERS else []
    return own + [line for each in ast.iter_child_nodes(node) for line in _lines(each)]


def test_who_expects_nesting_without_end_bounds_it() -> None:
    found = {str(path): unguarded(path.read_text()) for path in SOURCES}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_rule_sees_a_parser_without_a_bound() -> None:
    bare = "try:\n    x = json.loads(y)\nexcept (ValueError, RecursionError):\n    pass\n"
    assert unguarded(bare) == [2]
    assert not unguarded(bare.replace("x = json.loads(y)", "with bounded_recursion():\n        x = json.loads(y)"))
