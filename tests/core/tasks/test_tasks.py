"""One contract for every task, and each task's own figures against scikit-learn's."""

from __future__ import annotations

import pkgutil
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score, mean_absolute_error, r2_score, recall_score, roc_auc_score

from edgekit.core import tasks
from edgekit.core.errors import DataError
from edgekit.core.tasks import TASKS, anomaly, classification, multi_label, regression

from . import test_detection as box_scenes
from . import test_instance_masks as instance_scenes
from . import test_keypoints as pose_scenes
from . import test_segmentation as mask_scenes

SAMPLES = 300
OFFERED = {
    "METRIC", "METRIC_TEXT", "OUTPUTS_NAME", "AT_MOST_ONE", "RECONSTRUCTS", "NEEDS_SHAPE", "default_names",
    "normalize_labels", "check_split", "strata", "score_samples", "accuracy", "drop", "same_answers", "constant_answer",
    "GROUP", "SCORE", "SCORE_RISES", "CORRECT_WHEN", "answers", "is_correct", "groups", "describe_answers",
    "describe_labels",
}  # fmt: skip


@cache
def drawn(task: str, noise: float, seed: int = 1) -> dict[str, np.ndarray | None]:
    """Labels of 300 samples and the outputs of a network that is off by so much; the same samples for a seed."""
    random, off = np.random.default_rng(seed), np.random.default_rng([seed, 7])
    if task in ("classification", "embedding"):
        y = random.integers(0, 4, SAMPLES)
        return {"y": y, "outputs": np.eye(4)[y] + noise * off.normal(size=(SAMPLES, 4)), "inputs": None}
    if task == "regression":
        y = random.normal(size=(SAMPLES, 2)).astype(np.float32)
        return {"y": y, "outputs": y + noise * off.normal(size=y.shape), "inputs": None}
    if task == "multi_label":
        y = (random.random((SAMPLES, 5)) < 0.3).astype(np.int64)
        return {"y": y, "outputs": y - 0.5 + noise * off.normal(size=y.shape), "inputs": None}
    if task == "detection":
        y = box_scenes.labels(SAMPLES, seed, most=4)
        shape = np.broadcast_to(np.float32(0), (SAMPLES, 3, box_scenes.HEIGHT, box_scenes.WIDTH))
        return {"y": y, "outputs": box_scenes.answered(y, noise, seed), "inputs": shape}
    if task == "keypoints":
        y = pose_scenes.labels(SAMPLES, seed, most=4)
        shape = np.broadcast_to(np.float32(0), (SAMPLES, 3, pose_scenes.HEIGHT, pose_scenes.WIDTH))
        return {"y": y, "outputs": pose_scenes.answered(y, noise, seed), "inputs": shape}
    if task == "instance_masks":
        y = instance_scenes.labels(SAMPLES, seed, most=4)
        return {
            "y": y, "outputs": instance_scenes.answered(y, noise, seed), "inputs": instance_scenes.shape(SAMPLES)
        }  # fmt: skip
    if task == "segmentation":
        y = mask_scenes.labels(SAMPLES, seed)
        return {"y": y, "outputs": mask_scenes.answered(y, noise, seed), "inputs": None}
    y = (random.random(SAMPLES) < 0.3).astype(np.int64)
    x = random.normal(size=(SAMPLES, 8))
    return {"y": y, "outputs": x + (noise + 0.3 * y[:, None]) * off.normal(size=x.shape), "inputs": x}


@cache
def marks(task: str, noise: float, seed: int = 1) -> Any:
    return tasks.load_task(task).score_samples(**drawn(task, noise, seed))


def test_every_file_is_a_task_and_offers_all_that_is_promised() -> None:
    assert {found.name for found in pkgutil.iter_modules(tasks.__path__)} == {
        *TASKS,
        "labels",
        "accuracy_drop",
        "accuracy_interval",
        "box_matches",
        "object_matches",
    }
    for task in TASKS:
        assert not OFFERED - set(vars(tasks.load_task(task)))


@pytest.mark.parametrize("task", TASKS)
def test_a_second_accuracy_is_a_fraction_that_falls_too_and_has_another_name(task: str) -> None:
    before, worse = marks(task, 0.2), marks(task, 0.9)
    second = tasks.second_metric(before)
    assert (second is not None) == (task in tasks.BOX_TASKS)
    if second:
        assert second.metric != tasks.load_task(task).METRIC
        assert 1 >= second.compute(before) > second.compute(worse) >= 0


@pytest.mark.parametrize("task", TASKS)
def test_a_network_below_another(task: str) -> None:
    before, worse = marks(task, 0.2), marks(task, 0.9)
    drop = tasks.drop(before, worse, 0.95)
    assert drop.drop_pp == pytest.approx(100 * (tasks.accuracy(before) - tasks.accuracy(worse)), abs=1e-5)
    assert drop.drop_pp > 5 and drop.bound_pp > drop.drop_pp
    assert (drop.samples, drop.confidence) == (SAMPLES, 0.95)
    assert drop.lost > drop.gained
    assert tasks.drop(before, worse, 0.99).bound_pp > drop.bound_pp
    assert tasks.drop(worse, before, 0.95).drop_pp == pytest.approx(-drop.drop_pp)
    assert tasks.drop(before, worse, 0.95) == drop  # the draws of a bootstrap are always the same


@pytest.mark.parametrize("task", TASKS)
def test_a_network_beside_itself(task: str) -> None:
    """Where a sample counts for one at most, none lost of so many still leaves Tango's bound open."""
    found = marks(task, 0.4)
    drop = tasks.drop(found, found, 0.95)
    assert (drop.drop_pp, drop.lost, drop.gained) == (0, 0, 0)
    assert drop.bound_pp == drop.least_pp
    assert (drop.least_pp > 0.8) == tasks.load_task(task).AT_MOST_ONE


@pytest.mark.parametrize("task", TASKS)
def test_other_samples_cannot_be_compared(task: str) -> None:
    found = marks(task, 0.4)
    fewer = tasks.load_task(task).score_samples(
        **{name: value if value is None else value[:-1] for name, value in drawn(task, 0.4).items()}
    )
    with pytest.raises(DataError, match="answers to 300 and to 299 samples cannot be compared"):
        tasks.drop(found, fewer, 0.95)


@pytest.mark.numerics
@pytest.mark.parametrize("task", [task for task in TASKS if task != "classification"])
def test_the_bound_holds_as_often_as_it_says(task: str) -> None:
    """Two networks equally good: the drop of all samples, 0, is within nearly all bounds of drawn ones."""
    draws = 40 if task in (*tasks.BOX_TASKS, "segmentation") else 100  # they take half a second each
    held = [
        tasks.drop(marks(task, 0.5, seed), tasks.load_task(task).score_samples(**other(task, seed)), 0.9).bound_pp >= 0
        for seed in range(draws)
    ]
    spread = 2.7 * (draws * 0.9 * 0.1) ** 0.5
    assert 0.9 * draws - spread <= sum(held) <= 0.9 * draws + spread


def other(task: str, seed: int) -> dict[str, np.ndarray | None]:
    """A second network of the same noise on the same samples."""
    found = drawn(task, 0.5, seed)
    if task == "detection":
        return {**found, "outputs": box_scenes.answered(np.asarray(found["y"]), 0.5, seed + 1000)}
    if task == "keypoints":
        return {**found, "outputs": pose_scenes.answered(np.asarray(found["y"]), 0.5, seed + 1000)}
    if task == "instance_masks":
        return {**found, "outputs": instance_scenes.answered(np.asarray(found["y"]), 0.5, seed + 1000)}
    if task == "segmentation":
        return {**found, "outputs": mask_scenes.answered(np.asarray(found["y"]), 0.5, seed + 1000)}
    random = np.random.default_rng([seed, 8])
    y = np.asarray(found["y"])
    perfect = np.eye(4)[y] if task == "embedding" else found["inputs"]
    perfect = {"regression": y, "multi_label": y - 0.5}.get(task, perfect)
    assert perfect is not None
    spread = 0.5 + 0.3 * y[:, None] if task == "anomaly" else 0.5
    return {**found, "outputs": perfect + spread * random.normal(size=perfect.shape)}


@pytest.mark.parametrize("noise", [0.1, 0.5, 2.0])
def test_accuracies_are_scikit_learns(noise: float) -> None:
    given = drawn("regression", noise)
    assert tasks.accuracy(regression.score_samples(**given)) == pytest.approx(
        r2_score(given["y"], given["outputs"]), abs=1e-6
    )
    given = drawn("multi_label", noise)
    expected = f1_score(given["y"], np.asarray(given["outputs"]) >= 0, average="micro")
    assert tasks.accuracy(multi_label.score_samples(**given)) == pytest.approx(expected)
    given = drawn("anomaly", noise)
    scores = anomaly.anomaly_scores(given["outputs"], given["inputs"])
    assert tasks.accuracy(anomaly.score_samples(**given)) == pytest.approx(roc_auc_score(given["y"], scores))
    coarse = tasks.SampleScores("anomaly", np.stack([scores.round(1), np.asarray(given["y"], float)], axis=1))
    assert tasks.accuracy(coarse) == pytest.approx(roc_auc_score(given["y"], scores.round(1)))  # many ties


def test_a_map_of_distances_scores_by_its_largest() -> None:
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    maps = random.normal(size=(80, 1, 4, 4)).astype(np.float32)
    maps[:, 0, 2, 1] += 2 * y
    inputs = np.zeros((80, 3, 32, 32), np.float32)
    scores = anomaly.score_samples(maps, inputs, y)
    np.testing.assert_array_equal(scores.values[:, 0], maps.max(axis=(1, 2, 3)))
    answers = anomaly.answers(maps, inputs)
    assert answers.shape == (80, 4, 4)
    assert anomaly.is_correct(answers, y).sum() == anomaly.is_correct(maps.max(axis=(1, 2, 3)), y).sum()
    best = int(anomaly.closeness(answers, y).argmax())
    assert y[best] == 1
    drawn = anomaly.drawn_answers(answers, y)
    np.testing.assert_array_equal(
        drawn.max(axis=(1, 2)) > 1, scores.values[:, 0] > np.quantile(scores.values[:40, 0], 0.99)
    )


def test_the_interval_of_the_area_covers_it_and_narrows_with_more_samples() -> None:
    widths = []
    for count in (40, 400):
        values = np.random.default_rng(count).normal(size=(count, 2))
        values[:, 1] = np.arange(count) % 2
        values[:, 0] += values[:, 1]
        scores = tasks.SampleScores("anomaly", values)
        low, high = anomaly.interval(scores, 0.95)
        assert low < tasks.accuracy(scores) < high
        widths.append(high - low)
    assert widths[1] < 0.7 * widths[0]


def test_placements_make_up_the_area() -> None:
    found = marks("anomaly", 0.5)
    anomalous, places = found.values[:, 1] > 0, anomaly.rank_shares(found)
    assert places[anomalous].mean() == pytest.approx(tasks.accuracy(found))
    assert places[~anomalous].mean() == pytest.approx(tasks.accuracy(found))


def test_a_value_that_never_varies_is_right_or_wrong_as_a_whole() -> None:
    y = np.ones((20, 1), np.float32)
    assert tasks.accuracy(regression.score_samples(y, None, y)) == 1
    assert tasks.accuracy(regression.score_samples(y + 1, None, y)) == 0


@pytest.mark.parametrize("task", TASKS)
def test_answers_alike(task: str) -> None:
    kind, given = tasks.load_task(task), drawn(task, 0.3)
    outputs, inputs = given["outputs"], given["inputs"]
    assert kind.same_answers(outputs, outputs, inputs).all()
    nearly = outputs + 1e-6
    assert kind.same_answers(outputs, nearly, inputs).mean() > 0.99
    assert kind.same_answers(outputs, drawn(task, 3.0)["outputs"], inputs).mean() < 0.7


@pytest.mark.parametrize("task", TASKS)
def test_what_always_says_the_same_is_no_better_than_it_says(task: str) -> None:
    given = drawn(task, 0.3)
    guessed, saying = tasks.load_task(task).constant_answer(given["y"])
    assert 0 <= guessed < tasks.accuracy(tasks.load_task(task).score_samples(**given))
    assert saying.startswith("always ")
    if task != "anomaly":
        assert tasks.why_no_better_than_guessing(task, given["outputs"], given["y"]) == ""
        nothing = np.full_like(given["outputs"], -9 if task == "keypoints" else 0)  # points of 0 may lie in objects
        message = tasks.why_no_better_than_guessing(task, nothing, given["y"])
        assert f"on validation, and {saying} would give" in message


NAMES = ("a", "b")


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        ("classification", np.zeros((4, 2), int), "labels are int64 of shape .4, 2.; they must be integers"),
        ("classification", np.array([0, 1, 2]), "label 2 at sample 2 .1 such labels.; labels must be 0 to 1"),
        ("regression", np.zeros((4, 3), np.float32), "3 values for each sample, and 2 names in classes: 'a', 'b'"),
        ("regression", np.array([[0.0, 1.0], [np.nan, 2.0]]), "a of sample 1 is nan; repair or remove it"),
        ("regression", np.array([["x", "y"]]), "labels are <U1 of shape .1, 2.; a regression has floating-point"),
        ("multi_label", np.array([[0, 1], [2, 0]]), "'a' of sample 1 is 2; it must be 0 or 1"),
        ("multi_label", np.array([[0.0, 0.5]]), "'b' of sample 0 is 0.5; it must be 0 or 1"),
        ("embedding", np.zeros((4, 2), int), "labels are int64 of shape .4, 2.; they must be integers"),
        ("anomaly", np.zeros((4, 2), int), "give each sample a whole number: 0 normal, 1 anomaly"),
        ("anomaly", np.array([0, 1]), "classes: got a, b; exactly one class must be called normal"),
    ],
)
def test_labels_that_are_none(task: str, y: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=f"train: .*{message}|{message}"):
        tasks.load_task(task).normalize_labels("train", y, NAMES)


@pytest.mark.parametrize(
    ("task", "y", "message"),
    [
        ("classification", np.array([0, 0]), "no sample of class 'b'"),
        ("regression", np.array([[1.0, 2.0], [1.0, 3.0]]), "'a' is the same for all 2 samples, so there is nothing to"),
        (
            "regression",
            np.array([[1.0, 2e5], [-1.0, 3e5]]),
            r"b has mean 2.5e\+05 and standard deviation 5e\+04; .*give",
        ),
        ("regression", np.array([[50.0, 1.0], [51.0, -1.0]]), "a has mean 50.5 and standard deviation 0.5"),
        ("multi_label", np.array([[0, 1], [0, 0]]), "no sample has 'a'; add other samples"),
        ("multi_label", np.array([[0, 1], [1, 1]]), "every sample has 'b'"),
        ("embedding", np.array([1, 1]), "all 2 samples have one label"),
        ("embedding", np.array([0, 1]), "no two of 2 samples have the same label"),
        ("anomaly", np.array([1, 1]), "no normal sample among 2"),
    ],
)
def test_splits_that_cannot_be_evaluated_are_refused(task: str, y: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        tasks.load_task(task).check_split("train", y, NAMES)


def test_validation_needs_anomalies_and_train_none() -> None:
    anomaly.check_split("train", np.zeros(4, int), anomaly.NAMES)
    with pytest.raises(DataError, match="validation: no anomaly among 4 samples"):
        anomaly.check_split("validation", np.zeros(4, int), anomaly.NAMES)


def test_normal_may_be_called_good_and_stand_anywhere() -> None:
    y = anomaly.normalize_labels("train", np.array([0, 1, 2, 1]), ("cracked", "good", "scratched"))
    assert y.tolist() == [1, 0, 1, 0]


def test_what_a_division_keeps_in_proportion() -> None:
    assert np.bincount(regression.strata(np.arange(100.0)[::-1, None])).tolist() == [10] * 10
    assert regression.strata(np.array([[3.0], [1.0], [2.0]])).tolist() == [2, 0, 1]
    y = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0], [0, 0, 0]])
    assert multi_label.strata(y).tolist() == [3, 2, 1, 0]  # the rarest label of each, counted from 1; none: 0
    assert classification.strata(np.array([2, 0])).tolist() == [2, 0]


@pytest.mark.parametrize(
    ("task", "y", "names"),
    [
        ("classification", np.array([0, 2, 1]), ("0", "1", "2")),
        ("regression", np.zeros(3), ("value",)),
        ("regression", np.zeros((3, 2)), ("value 0", "value 1")),
        ("multi_label", np.zeros((3, 2), int), ("0", "1")),
        ("anomaly", np.zeros(3, int), ("normal", "anomaly")),
        ("embedding", np.array([0, 2, 1]), ("0", "1", "2")),
    ],
)
def test_names_where_the_data_have_none(task: str, y: np.ndarray, names: tuple[str, ...]) -> None:
    assert tasks.load_task(task).default_names(y) == names


def test_the_scale_that_is_named_is_one_that_training_begins_with() -> None:
    """An air pressure in Pa: the mean must be precise enough to leave little of it."""
    y = 101_325 + 5 * np.random.default_rng(0).standard_normal((200, 1))
    with pytest.raises(DataError, match="in another unit") as caught:
        regression.check_split("train", y, ("pressure",))
    mean, spread = map(float, re.findall(r"\(y - ([\d.]+)\) / ([\d.]+)", str(caught.value))[0])
    regression.check_split("train", (y - mean) / spread, ("pressure",))


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.7], [0.0, 0.0, 0.0, 0.3]])
def test_draws_of_one_value_alone_leave_the_bound_finite(values: list[float]) -> None:
    """The spread about the mean of one sample drawn many times over is a rounding error, and no divisor."""
    y = np.array(values)[:, None]
    before, after = (regression.score_samples(y + error, None, y) for error in (0.01, 0.02))
    found = regression.drop(before, after, 0.95)
    assert abs(found.bound_pp) < 1e5


def test_samples_of_one_kind_cannot_be_told_apart() -> None:
    x = np.random.default_rng(0).standard_normal((5, 3))
    assert tasks.accuracy(anomaly.score_samples(x, x + 1, np.zeros(5, int))) == 0.5


OF_EACH = {
    "classification": ("a", "b", "c", "d"),
    "regression": ("f", "root"),
    "multi_label": ("v", "w", "x", "y", "z"),
    "anomaly": ("normal", "anomaly"),
    "detection": ("a", "b", "c"),
    "keypoints": pose_scenes.NAMES,
    "instance_masks": instance_scenes.NAMES,
    "segmentation": mask_scenes.NAMES,
    "embedding": ("a", "b", "c", "d"),
}


def answers_and_labels(task: str, noise: float) -> tuple[np.ndarray, np.ndarray]:
    given = drawn(task, noise)
    assert given["y"] is not None
    return tasks.load_task(task).answers(given["outputs"], given["inputs"]), given["y"]


@pytest.mark.parametrize("task", TASKS)
def test_groups_hold_every_sample_and_a_worse_network_scores_worse(task: str) -> None:
    kind, names = tasks.load_task(task), OF_EACH[task]
    (good, y), (bad, _) = answers_and_labels(task, 0.2), answers_and_labels(task, 0.9)
    before, after = kind.groups(good, y, names), kind.groups(bad, y, names)
    assert [group.name for group in before] == [group.name for group in after]
    expected = {"multi_label": int(y.sum()), "regression": 2 * SAMPLES}.get(task, SAMPLES)
    expected = int((y[:, 1:, 0] >= 0).sum()) if task in tasks.BOX_TASKS else expected
    expected = int((y != 255).sum()) if task == "segmentation" else expected
    assert sum(group.samples for group in before) == expected
    worse = [(a.score < b.score) == kind.SCORE_RISES for b, a in zip(before, after, strict=True) if a.score != b.score]
    assert worse and sum(worse) > len(worse) / 2
    assert kind.is_correct(good, y).sum() > kind.is_correct(bad, y).sum()
    assert kind.is_correct(good, y).dtype == bool


@pytest.mark.parametrize("task", TASKS)
def test_answers_and_labels_are_described_in_words(task: str) -> None:
    kind = tasks.load_task(task)
    answers, y = answers_and_labels(task, 0.2)
    answered, labelled = kind.describe_answers(answers, y, OF_EACH[task]), kind.describe_labels(y, OF_EACH[task])
    assert len(answered) == len(labelled) == SAMPLES
    if task == "segmentation":  # shares of the picture, whose last per cent may differ
        assert answered[0].endswith(("ground", "disc", "bar")) and labelled[-1] == "nothing"
    elif task in tasks.BOX_TASKS:  # as many of each, and they may lie elsewhere
        assert all(a == b for a, b, right in zip(answered, labelled, kind.is_correct(answers, y), strict=True) if right)
    elif task != "regression":  # whose right answers need not be the very same number
        assert [a == b for a, b in zip(answered, labelled, strict=True)] == kind.is_correct(answers, y).tolist()


def test_scores_of_groups_are_scikit_learns() -> None:
    answers, y = answers_and_labels("classification", 0.5)
    groups = classification.groups(answers, y, OF_EACH["classification"])
    assert [group.score for group in groups] == pytest.approx(recall_score(y, answers, average=None))
    assert sum(group.false for group in groups) == (answers != y).sum()
    answers, y = answers_and_labels("multi_label", 0.5)
    labels = multi_label.groups(answers, y, OF_EACH["multi_label"])
    assert [group.score for group in labels] == pytest.approx(f1_score(y, answers, average=None))
    answers, y = answers_and_labels("regression", 0.5)
    ranges = [group for group in regression.groups(answers, y, OF_EACH["regression"]) if group.name.startswith("f:")]
    assert len(ranges) == regression.RANGES and {group.samples for group in ranges} == {SAMPLES // regression.RANGES}
    assert np.mean([group.score for group in ranges]) == pytest.approx(
        mean_absolute_error(y[:, 0], answers[:, 0]), 1e-5
    )


def test_normal_samples_raise_one_false_alarm_in_a_hundred() -> None:
    answers, y = answers_and_labels("anomaly", 0.5)
    normal, anomalies = anomaly.groups(answers, y, OF_EACH["anomaly"])
    alarms = normal.samples - normal.found
    assert alarms == anomalies.false == pytest.approx(anomaly.FALSE_ALARMS * normal.samples, abs=1)
    assert normal.false == anomalies.samples - anomalies.found


def test_a_value_that_most_samples_share_is_one_range() -> None:
    y = np.r_[np.zeros(90), np.linspace(1, 2, 10)][:, None].astype(np.float32)
    groups = regression.groups(y + 0.5, y, ("value",))
    assert sum(group.samples for group in groups) == 100
    assert all(group.score == pytest.approx(0.5) for group in groups)
