"""Decide: budget, ties and winners, on figures made for the purpose."""

from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.core.tasks.accuracy_drop import drop_of_counts
from edgekit.stages.benchmark.decision import check_limits, unresolved_steps
from edgekit.stages.benchmark.timings import Timings
from edgekit.stages.benchmark.winners import too_close_to_call
from tests.stages.benchmark.synthetic import CALLS, Row, budget, decided, decision_named, row

WINNER = "winner of tflite"


def test_the_fastest_inside_the_budget_wins_its_target() -> None:
    rows = [row("student-fp32-tflite"), row("student-int8-tflite", 0.9), row("student-fp32-onnx")]
    times = {"student-fp32-tflite": 0.02, "student-int8-tflite": 0.01, "student-fp32-onnx": 0.03}
    found = decided(rows, times)
    winners = {"tflite": "student-fp32-tflite", "onnx": "student-fp32-onnx"}
    assert found.content["measured"] == {"winners": winners, "too_slow": [], "buys_nothing": []}
    assert found.metrics["winners"] == winners
    assert found.metrics["winner"] == "student-fp32-tflite"
    assert found.metrics["verdict"]["speedup_vs_eager"] == pytest.approx(100)
    assert found.metrics["nearest_miss"] is None


def test_a_difference_below_the_margin_is_a_tie_and_goes_by_bytes() -> None:
    rows = [row("student-fp32-tflite", size=900), row("pruned-fp32-tflite", size=800), row("another-fp32-tflite")]
    found = decided(rows, {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.0208, "another-fp32-tflite": 0.0201})
    decision = decision_named(found, WINNER)
    assert (decision["chosen"], decision["rule"]) == ("pruned-fp32-tflite", "tie: fewest bytes")
    assert [each["in_the_tie"] for each in decision["candidates"]] == [True] * 3
    assert [each["ratio"] for each in decision["candidates"]] == pytest.approx([1.0, 1.005, 1.04])


def test_a_difference_above_the_margin_wins_over_fewer_bytes() -> None:
    rows = [row("student-fp32-tflite", size=900), row("pruned-fp32-tflite", size=800)]
    found = decided(rows, {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.0213}, noise=0.002)
    decision = decision_named(found, WINNER)
    assert (decision["chosen"], decision["rule"]) == ("student-fp32-tflite", "fastest")
    slower = decision["candidates"][1]
    assert 1.05 < slower["ratio_low"] <= slower["ratio"] <= slower["ratio_high"]
    assert not slower["in_the_tie"]


def test_a_difference_that_the_rounds_do_not_establish_is_a_tie() -> None:
    rows = [row("student-fp32-tflite", size=900), row("pruned-fp32-tflite", size=800)]
    times = {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.022}
    assert decision_named(decided(rows, times, noise=0.005), WINNER)["rule"] == "fastest"
    noisy = decision_named(decided(rows, times, noise=0.3), WINNER)
    assert (noisy["chosen"], noisy["rule"]) == ("pruned-fp32-tflite", "tie: fewest bytes")


def test_of_the_same_bytes_the_first_name_wins() -> None:
    rows = [row("student-fp32-tflite"), row("pruned-fp32-tflite")]
    decision = decision_named(decided(rows, {"student-fp32-tflite": 0.02, "pruned-fp32-tflite": 0.0203}), WINNER)
    assert (decision["chosen"], decision["rule"]) == ("pruned-fp32-tflite", "tie: same bytes, first name")


@pytest.mark.parametrize("seed", range(10))
def test_two_measurements_of_equals_decide_alike(seed: int) -> None:
    rows = [row(f"{model}-fp32-tflite", size=size) for model, size in (("student", 900), ("pruned", 800))]
    times = dict.fromkeys(("student-fp32-tflite", "pruned-fp32-tflite"), 0.02)
    assert decided(rows, times, noise=0.03, seed=seed).metrics["winners"]["tflite"] == "pruned-fp32-tflite"


@settings(deadline=None, max_examples=15)
@given(
    st.lists(st.tuples(st.floats(0.9, 1.0), st.floats(0.01, 0.02), st.integers(1, 9)), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_variants_does_not_matter(facts: list[tuple[float, float, int]], random: Random) -> None:
    rows = [row(f"m{i}-fp32-{'onnx' if i % 2 else 'tflite'}", facts[i][0], facts[i][2]) for i in range(len(facts))]
    times = {each["name"]: facts[i][1] for i, each in enumerate(rows)}
    mixed = random.sample(rows, len(rows))
    first, second = decided(rows, times), decided(mixed, times)
    assert first.content["measured"] == second.content["measured"]
    assert first.decisions == second.decisions


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.floats(0.5, 1.0), st.floats(0.001, 5.0), st.integers(1, 100)), min_size=1, max_size=6))
def test_no_winner_is_outside_the_budget_or_beaten_by_the_rule(facts: list[tuple[float, float, int]]) -> None:
    rows = [row(f"m{i}-fp32-onnx", accuracy, size) for i, (accuracy, _, size) in enumerate(facts)]
    times = {f"m{i}-fp32-onnx": value for i, (_, value, _) in enumerate(facts)}
    found = decided(rows, times)
    inside = {each["name"]: each["bytes"] for each in found.metrics["rows"][1:] if each["inside_budget"]}
    assert bool(inside) == found.metrics["verdict"]["met"]
    if inside:
        limit = 1.05 * min(times[name] for name in inside) * (1 + 1e-9)
        tie = [(size, name) for name, size in inside.items() if times[name] <= limit]
        assert found.metrics["winners"] == {"onnx": min(tie)[1]}


def test_the_overall_winner_is_one_of_the_winners_by_the_same_rule() -> None:
    rows = [row("student-fp32-tflite", size=900), row("student-fp32-onnx", size=800), row("pruned-fp32-onnx", size=850)]
    times = {"student-fp32-tflite": 0.02, "student-fp32-onnx": 0.0206, "pruned-fp32-onnx": 0.05}
    found = decided(rows, times)
    decision = decision_named(found, "winner over all targets")
    assert (decision["chosen"], decision["rule"]) == ("student-fp32-onnx", "tie: fewest bytes")
    assert {each["name"] for each in decision["candidates"]} == set(found.metrics["winners"].values())
    assert found.metrics["verdict"]["winner"] == found.metrics["winner"] == "student-fp32-onnx"


def test_the_budget_limits_the_bound_of_the_drop_not_the_drop() -> None:
    def inside(accuracy: float, samples: int, **limits: float) -> bool:
        return bool(check_limits(row("a-fp32-onnx", accuracy, samples=samples), budget(**limits))["inside_budget"])

    assert inside(0.98, 1000)
    assert not inside(0.98, 200)  # nothing lost, and yet 200 samples leave more than a point open
    assert inside(0.98, 200, accuracy_confidence=0.85)
    assert inside(0.97, 1000, accuracy_drop_pp=2.0)
    assert not inside(0.97, 1000)  # the drop is the budget, its bound is not
    assert inside(0.975, 10_000)


def test_a_checked_row_holds_counts_and_what_follows_from_them() -> None:
    checked = check_limits(row("a-fp32-onnx", 0.97, samples=1000), budget(accuracy_drop_pp=2.0))
    drop = drop_of_counts(10, 0, 1000, 0.95)
    assert {name: checked[name] for name in vars(drop)} == vars(drop)
    assert (drop.drop_pp, checked["reasons"]) == (1.0, [])


def test_gained_samples_are_set_against_lost_ones() -> None:
    swapped = {**row("a-fp32-onnx", samples=1000), "lost": 9, "gained": 9}
    worse = {**row("a-fp32-onnx", samples=1000), "lost": 9, "gained": 0}
    assert check_limits(swapped, budget())["bound_pp"] < check_limits(worse, budget())["bound_pp"]
    assert check_limits(swapped, budget())["drop_pp"] == 0.0


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (
            {"accuracy_drop_pp": 0.5},
            "accuracy drop 1.00 pp may be 1.02 pp (95 % confidence, 1000000 samples), over 0.5 pp",
        ),
        ({"latency_p50_ms": 0.5}, "p50 is over 0.5 ms"),
        ({"size_bytes": 999}, "1,000 bytes are over 999"),
    ],
)
def test_every_broken_limit_is_named(limits: Row, reason: str) -> None:
    found = decided([row("a-fp32-onnx", 0.97)], {"a-fp32-onnx": 1.0}, budget(**{"accuracy_drop_pp": 2.0, **limits}))
    (shown,) = found.metrics["rows"][1:]
    assert shown["reasons"] == [reason]
    assert not shown["inside_budget"]
    assert found.metrics["winners"] == {}


def test_only_a_whole_interval_above_the_limit_is_too_slow() -> None:
    rows = [row("student-fp32-tflite"), row("pruned-fp32-tflite")]
    times = {"student-fp32-tflite": 0.0215, "pruned-fp32-tflite": 0.03}
    limits = budget(latency_p50_ms=0.02)
    unsure = decided(rows, times, limits, noise=0.08)
    assert unsure.metrics["rows"][1]["p50_ms"] > 0.02
    assert unsure.content["measured"] == {
        "winners": {"tflite": "student-fp32-tflite"},
        "too_slow": ["pruned-fp32-tflite"],
        "buys_nothing": [],
    }
    evidence = {each["name"]: each for each in decision_named(unsure, "too slow for 0.02 ms")["candidates"]}
    assert evidence["student-fp32-tflite"]["low_ms"] < 0.02 < evidence["pruned-fp32-tflite"]["low_ms"]
    precise = decided(rows, times, limits, noise=0.001)
    assert precise.content["measured"] == {
        "winners": {},
        "too_slow": ["pruned-fp32-tflite", "student-fp32-tflite"],
        "buys_nothing": [],
    }


def test_nothing_but_the_measured_part_of_the_content_depends_on_a_latency() -> None:
    rows = [row("baseline-int8-tflite", size=5), row("student-fp32-tflite"), row("student-fp32-onnx", 0.9)]
    names = [each["name"] for each in rows]
    contents = [
        decided(rows, dict(zip(names, times, strict=True)), budget(latency_p50_ms=0.15)).content
        for times in ((0.1, 0.2, 0.3), (0.2, 0.1, 0.05), (0.2, 0.2, 0.2))
    ]
    assert len({json.dumps(each.pop("measured")) for each in contents}) == 3
    assert contents[0] == contents[1] == contents[2]
    assert set(contents[0]) == {"variants", "budget"}


def test_small_differences_of_the_latencies_leave_the_whole_content_as_it_is() -> None:
    rows = [row("student-fp32-tflite"), row("student-fp32-onnx")]
    first = decided(rows, {"student-fp32-tflite": 0.2, "student-fp32-onnx": 0.3})
    second = decided(rows, {"student-fp32-tflite": 0.1, "student-fp32-onnx": 0.17})
    assert first.content == second.content
    assert first.metrics != second.metrics


@pytest.mark.parametrize(
    ("p50_ms", "noise", "close"),
    [
        ({"a-fp32-onnx": 1.0, "b-fp32-onnx": 1.0}, 0.5, True),
        ({"a-fp32-onnx": 1.0, "b-fp32-onnx": 1.0}, 0.001, False),
        ({"a-fp32-onnx": 1.0, "b-fp32-onnx": 2.0}, 0.01, False),
        ({"a-fp32-onnx": 2.0, "b-fp32-onnx": 1.0}, 0.01, False),
        ({"a-fp32-onnx": 1.2, "b-fp32-onnx": 1.0}, 0.3, True),
    ],
)
def test_a_winner_that_only_noise_keeps_in_the_tie_is_too_close_to_call(
    p50_ms: dict[str, float], noise: float, close: bool
) -> None:
    decision = decided([row("a-fp32-onnx", size=10), row("b-fp32-onnx", size=20)], p50_ms, noise=noise, seed=1)
    assert bool(too_close_to_call(decision.decisions, 0.05)) is close


@pytest.mark.parametrize(
    ("low", "high", "more"),
    [
        (0.97, 1.03, True), (0.995, 1.005, False), (1.08, 1.3, True), (3.0, 3.9, False), (7.9, 15.2, True),
        (0.2, 0.3, True), (0.2, 0.22, False),
    ],
)  # fmt: skip
def test_rounds_are_added_until_what_a_step_bought_is_known(low: float, high: float, more: bool) -> None:
    first = {"step": "PyTorch eager", "variant": "baseline-eager", "p50_ms": 1.0, "kept": True}
    step = {**first, "step": "convert", "gain": (low * high) ** 0.5, "gain_low": low, "gain_high": high}
    assert bool(unresolved_steps([first, step], 0.1)) is more
    assert not unresolved_steps([first], 0.1)


def test_a_variant_that_was_given_up_is_compared_by_the_rounds_that_both_have() -> None:
    """`early` was measured while the machine was slow, and so was the first third of `late`."""
    late = np.concatenate([np.full(10, 2.0), np.full(20, 1.0)])
    samples_ms = {"early": np.full(10, 3.0), "late": late, "also late": late * 0.98}
    found = Timings({name: np.repeat(values, CALLS) for name, values in samples_ms.items()}, 30, 0.99, 0.1)
    assert (found.rounds_of("early"), found.rounds_of("late"), found.rounds_of("late", "early")) == (10, 30, 10)
    assert found.ratio("early", "late").ratio == pytest.approx(1.5)
    assert found.ratio("late", "also late").ratio == pytest.approx(1 / 0.98)
    assert found.median("late").p50_ms == 1.0
    assert found.fastest(samples_ms) == "also late"


def test_the_fastest_is_found_by_all_rounds_that_two_share() -> None:
    """In the first ten rounds, which are all that `given-up` has, the other two were the other way round."""
    first, second = np.full(30, 1.0), np.concatenate([np.full(10, 1.01), np.full(20, 0.95)])
    samples_ms = {"given-up": np.full(10, 2.0), "first": first, "second": second}
    found = Timings({name: np.repeat(values, CALLS) for name, values in samples_ms.items()}, 30, 0.99, 0.1)
    assert found.fastest(samples_ms) == "second"
