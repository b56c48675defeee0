"""Sparsity: zeros that buy neither time nor bytes are rejected, by figures made for the purpose."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.stages.benchmark.decision import Decision
from tests.stages.benchmark.synthetic import Row, budget, decided, decision_named, row

DENSE, SPARSE = "student-fp32-onnx", "sparse-fp32-onnx"
ZEROS = "sparsity without speed-up"


def decide_with_zeros(
    sparse_ms: float = 0.02,
    zipped: int = 1000,
    size: int = 1000,
    dense: Row | None = None,
    accuracy: float = 0.98,
    **options: Any,
) -> Decision:
    """A dense network of 0.02 ms and 1,000 compressed bytes beside the same with zeros."""
    rows = [dense or row(DENSE), {**row(SPARSE, accuracy, size), "zipped_bytes": zipped}]
    return decided(rows, {rows[0]["name"]: 0.02, SPARSE: sparse_ms}, **options)


def reasons(decision: Decision) -> list[str]:
    return next(each["reasons"] for each in decision.metrics["rows"] if each["name"] == SPARSE)


def test_zeros_that_buy_nothing_are_out_with_their_figures() -> None:
    decision = decide_with_zeros(zipped=980)
    assert decision.content["measured"]["buys_nothing"] == [SPARSE]
    assert reasons(decision) == [
        "no speed-up: 1.00× (1.00–1.00) as fast as student-fp32-onnx, 100 % of its bytes, compressed 98 %"
    ]
    assert decision.metrics["winners"] == {"onnx": DENSE}
    assert not next(each for each in decision.metrics["rows"] if each["name"] == SPARSE)["inside_budget"]
    assert [each["name"] for each in decision_named(decision, "winner of onnx")["candidates"]] == [DENSE]


@pytest.mark.parametrize(
    ("options", "buys"),
    [
        ({"sparse_ms": 0.018}, True),
        ({"sparse_ms": 0.0195}, False),
        ({"sparse_ms": 0.018, "noise": 0.3}, False),
        ({"sparse_ms": 0.04}, False),
        ({"zipped": 300}, False),
        ({"size": 500}, True),
        ({"size": 500, "sparse_ms": 0.0205}, True),
        ({"size": 500, "sparse_ms": 0.04}, False),
        ({"size": 960}, False),
    ],
)
def test_zeros_must_be_significantly_faster_or_smaller_and_no_slower(options: Row, buys: bool) -> None:
    decision = decide_with_zeros(**options)
    assert (reasons(decision) == []) is buys
    assert (decision.content["measured"]["buys_nothing"] == []) is buys
    assert decision_named(decision, ZEROS)["candidates"][0]["buys"] is buys


def test_sparse_is_held_against_the_same_precision_on_the_same_target_alone() -> None:
    for other in ("student-int8-onnx", "student-fp32-tflite", "pruned-fp32-onnx"):
        decision = decide_with_zeros(dense=row(other))
        assert decision.content["measured"]["buys_nothing"] == []
        assert ZEROS not in {each["decision"] for each in decision.decisions}


def test_a_dense_network_outside_the_budget_cannot_be_taken_instead() -> None:
    decision = decide_with_zeros(dense=row(DENSE, 0.9))
    assert reasons(decision) == []
    assert decision.metrics["winners"] == {"onnx": SPARSE}


def test_a_recorded_rejection_is_followed_and_todays_is_reported() -> None:
    recorded = {"winners": {"onnx": DENSE}, "too_slow": [], "buys_nothing": [SPARSE]}
    decision = decide_with_zeros(sparse_ms=0.01, recorded=recorded)
    assert decision.content["measured"] == recorded
    assert reasons(decision) == [
        "no speed-up, as recorded: 2.00× (2.00–2.00) as fast as student-fp32-onnx, 100 % of its bytes, compressed 100 %"
    ]
    assert (decision_named(decision, ZEROS)["chosen"], decision_named(decision, ZEROS)["today"]) == ([SPARSE], [])


def test_a_recorded_acceptance_is_followed_too() -> None:
    recorded = {"winners": {"onnx": SPARSE}, "too_slow": [], "buys_nothing": []}
    decision = decide_with_zeros(recorded=recorded)
    assert reasons(decision) == []
    assert decision.metrics["winners"] == {"onnx": SPARSE}
    assert decision_named(decision, ZEROS)["today"] == [SPARSE]


def test_every_broken_limit_stands_beside_it() -> None:
    decision = decide_with_zeros(sparse_ms=0.04, accuracy=0.9, limits=budget(latency_p50_ms=0.03))
    messages = reasons(decision)
    assert [words.partition(" ")[0] for words in messages] == ["accuracy", "p50", "no"]


def test_compressed_bytes_are_no_content_for_another_zlib_gives_others() -> None:
    smaller, larger = decide_with_zeros(zipped=990), decide_with_zeros(zipped=980)
    assert smaller.content == larger.content
    assert smaller.metrics["rows"] != larger.metrics["rows"]
