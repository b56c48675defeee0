"""The table of reference models: the same in the notebook and on the page, and one line on the terminal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from edgekit.core.schema.variants import ReferenceModelRow
from edgekit.report.sections import variants


def rival(name: str, **winner: Any) -> ReferenceModelRow:
    nothing = dict.fromkeys(
        f"winner{rest}" for rest in ("", "_gain_pp", "_bytes_share", "_speedup", "_speedup_low", "_speedup_high")
    )
    figures = {"name": name, "accuracy_test": 0.91, "bytes": 96_000, "p50_ms": 0.5, "p95_ms": 0.625}
    return cast("ReferenceModelRow", {**figures, **nothing, **winner})


BEATEN = rival(
    "theirs.tflite",
    winner="student-int8-tflite",
    winner_gain_pp=1.5,
    winner_bytes_share=0.25,
    winner_speedup=2.0,
    winner_speedup_low=1.9,
    winner_speedup_high=2.1,
)
ALONE = rival("other.onnx")


def test_notebook_and_page_show_the_same_table() -> None:
    notebook = variants.rivals_table(cast("Any", SimpleNamespace(metrics={"rivals": [BEATEN, ALONE]})))
    grid = variants.references_grid(cast("Any", {"rivals": [BEATEN, ALONE]}))
    assert grid is not None
    assert list(grid.columns) == list(notebook.columns)
    assert [line.cells for line in grid.lines] == notebook.rows
    assert notebook.rows == [
        ["theirs.tflite", "91.00\u00a0%", "96,000", "0.5", "0.625", "student-int8-tflite", "+1.50", "0.25×",
         "2× (1.9–2.1)"],
        ["other.onnx", "91.00\u00a0%", "96,000", "0.5", "0.625", "–", "–", "–", "–"],
    ]  # fmt: skip
    assert set(grid.columns) - grid.numeric == {"reference model", "winner"}


def test_without_a_reference_model_there_is_no_table_on_the_page_and_the_notebook_says_so() -> None:
    assert variants.references_grid(cast("Any", {"rivals": []})) is None
    empty = variants.rivals_table(cast("Any", SimpleNamespace(metrics={"rivals": []})))
    assert empty.title == "the config names no reference model (benchmark.rivals)"


def test_the_console_says_it_in_one_line_where_a_variant_won() -> None:
    assert variants.reference_sentence(BEATEN) == (
        "Against theirs.tflite (91.00\u00a0% on test, 96,000 bytes, p50 0.5 ms): student-int8-tflite is 2× faster, "
        "+1.50 pp on test, 0.25× its bytes."
    )
    assert variants.reference_sentence(ALONE) == ""
