"""The fidelities, files and values of a batch, with a scripted pool; test_search.py runs real jobs."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import ConfigError, ResourceError
from edgekit.runner.bundle.manifest import TensorSpec
from edgekit.search.baseline_files import relative_limits
from edgekit.search.evaluator import Evaluator, trial_folder
from edgekit.search.model_files import ModelFiles
from edgekit.search.objectives import Objective
from edgekit.search.space import Space
from edgekit.search.study import SearchedConfig, StudyState, search
from edgekit.search.trial import BatchContext, Trial
from edgekit.workbook.plan import Plan, load_plan
from edgekit.workbook.workers.jobs import JobLost
from tests.search.pools import ScriptedPool

TINY = Path(__file__).parents[1] / "configs" / "tiny.yaml"
OBJECTIVES = (Objective("accuracy"), Objective("p50_ms", "tflite"), Objective("bytes", "tflite"))
X = (TensorSpec("x", (1, 4), "float32", "NC"),)


def width_of(settings: list[str]) -> int:
    return int(next(each for each in settings if each.startswith("distill.student.kwargs.width=")).partition("=")[2])


class World:
    """What the works find: a network of width w has 100·w weights, w ms and an accuracy that grows with w.

    `slow` multiplies every ratio that is measured; a real machine's noise is as unlike.
    """

    def __init__(self, folder: Path, slow: float = 1.0) -> None:
        self.folder, self.slow, self.rounds = folder, slow, itertools.count(1)
        self.pool = ScriptedPool(
            prepare_baseline=self.prepare_baseline, measure_shapes=self.measure_shapes,
            convert_untrained=self.convert_untrained, train_briefly=self.train_briefly,
            train_fully=self.train_fully, time_files=self.time_files,
        )  # fmt: skip

    def content(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        return ModelFiles.from_paths("tflite", [path], X, X).to_json()

    def prepare_baseline(
        self, config: str, settings: list[str], folder: str, targets: list[str], caches: list[str]
    ) -> Any:
        self.content("input.npy")
        result = relative_limits(load_plan(Path(config), settings, checked_before=True), targets)
        sha256s = {sha256: {"path": limit.file["path"]} for sha256, limit in result.items()}
        beside = {"raw": str(self.folder / "input.npy"), "files": sha256s}
        return {
            **({"beside": beside} if sha256s else {}),
            "anchors": {"tflite": self.content("anchor")},
            "accuracy": 0.93,
            "input": str(self.folder / "input.npy"),
            "took_s": {},
        }

    def measure_shapes(self, config: str, trials: dict[str, list[str]]) -> Any:
        return {number: self.shape(width_of(settings)) for number, settings in trials.items()}

    def shape(self, width: int) -> Any:
        if width == 13:
            return {"failed": "distill.student: width must not be 13"}
        size = {
            "parameters": 100 * width,
            "macs": 10 * width,
            "pruned_parameters": 50 * width,
            "pruned_macs": 5 * width,
        }
        return {"size": size, "precisions": ["fp32", "int8"], "epochs": 12}

    def convert_untrained(self, config: str, trials: dict[str, list[str]], folder: str, targets: list[str]) -> Any:
        return {number: {"files": [self.content(f"untrained-{width_of(settings)}")]}
                for number, settings in trials.items()}  # fmt: skip

    def train_briefly(
        self, config: str, settings: list[str], out: str, epochs: int, caches: list[str], teachers: str
    ) -> Any:
        assert epochs == 3 and Path(teachers).is_absolute() and Path(teachers).name == "teachers"
        accuracy = 0.5 if "distill.learning_rate=0.001" in settings else 0.9
        return {"accuracy": accuracy, "interval": [accuracy - 0.05, accuracy + 0.05], "took_s": {"distill": 1.0}}

    def train_fully(
        self, config: str, settings: list[str], out: str, targets: list[str], caches: list[str], teachers: str
    ) -> Any:
        assert Path(teachers).is_absolute() and Path(teachers).name == "teachers"
        width = width_of(settings)
        drop_pp = 60.0 if width == 5 else 2.0
        rows = [
            self.row(f"student-fp32-{width}", 0.90 + width / 1000, drop_pp, 400 * width),
            self.row(f"student-int8-{width}", 0.89 + width / 1000, drop_pp, 100 * width),
            self.row(f"pruned-int8-{width}", 0.60, 60.0, 50 * width),
        ]
        return {"rows": rows, "took_s": {"distill": 4.0}}

    def row(self, name: str, accuracy: float, bound_pp: float, size: int) -> dict[str, Any]:
        content = self.content(name)
        return {"name": name, "target": "tflite", "accuracy": accuracy, "interval": [accuracy - 0.02, accuracy + 0.02],
                "drop_pp": bound_pp - 1, "bound_pp": bound_pp, "bytes": size, "content": content}  # fmt: skip

    def time_files(self, contents: list[Any], anchors: Any, protocol: Any, beside: Any = None) -> Any:
        """A rival takes four times as long as the anchor."""
        next(self.rounds)
        ratios: dict[str, Any] = {}
        for each in map(ModelFiles.from_json, contents):
            _, precision, width = f"x-{Path(each.paths[0]).name}".rsplit("-", 2)
            ratio = self.slow * int(width) * (0.25 if precision == "int8" else 0.5)
            ratios[each.key] = {"ratio": ratio, "low": ratio * 0.95, "high": ratio * 1.05}
            other = {name: ratio * share / 4 for name, share in (("ratio", 1), ("low", 0.95), ("high", 1.05))}
            ratios[each.key] |= {"beside": dict.fromkeys(beside["files"], other)} if beside else {}
        return {"ratios": ratios, "anchors": {"tflite": 1.0 * self.slow}, "disturbed": []}


def plan(*settings: str) -> Plan:
    return load_plan(TINY, [*settings], checked_before=True)


def a_trial(number: int, width: int, *settings: str) -> Trial:
    return Trial(number, 0, {}, (f"distill.student.kwargs.width={width}", *settings))


def batch(
    world: World, folder: Path, trials: list[Trial], *settings: str
) -> tuple[dict[int, Any], Evaluator, BatchContext]:
    evaluator = Evaluator(plan(*settings), folder, OBJECTIVES, world.pool)
    context = BatchContext(folder, 0, (), (), lambda number, outcome: None)
    outcomes = evaluator(trials, context)
    return {trial.number: each for trial, each in zip(trials, outcomes, strict=True)}, evaluator, context


def test_a_trial_is_worth_its_fastest_file_within_the_drop(tmp_path: Path) -> None:
    result, _, context = batch(World(tmp_path / "w"), tmp_path / "s", [a_trial(0, 8)])
    assert result[0]["state"] == "complete" and result[0]["rung"] == "all"
    assert result[0]["variants"] == {"tflite": "student-int8-8"}  # the pruned one is as fast, and has lost too much
    assert result[0]["values"] == [pytest.approx(0.898), pytest.approx(2.0), 800.0]
    assert result[0]["intervals"][1] == [pytest.approx(1.9), pytest.approx(2.1)]
    assert result[0]["constraints"] == {"accuracy_drop_pp": pytest.approx(2.0 - 25.0)}
    assert context.baselines == [{"name": "baseline", "target": "tflite", "p50_ms": 1.0}]
    assert context.baseline_accuracy == 0.93
    assert set(result[0]["took_s"]) == {"shape", "few_epochs", "distill", "measuring"}
    assert (result[0]["took_s"]["few_epochs"], result[0]["took_s"]["distill"]) == (1.0, 4.0)


def test_where_no_file_is_within_the_drop_the_most_accurate_stands_for_it_and_the_limit_is_not_met(
    tmp_path: Path,
) -> None:
    result, _, _ = batch(World(tmp_path / "w"), tmp_path / "s", [a_trial(0, 5)])
    assert result[0]["variants"] == {"tflite": "student-fp32-5"}
    assert result[0]["constraints"]["accuracy_drop_pp"] == pytest.approx(35.0)


def test_a_network_that_cannot_be_built_costs_its_own_trial_alone(tmp_path: Path) -> None:
    result, _, _ = batch(World(tmp_path / "w"), tmp_path / "s", [a_trial(0, 13), a_trial(1, 8)])
    assert (result[0]["state"], result[0]["rung"]) == ("failed", "shape") and "must not be 13" in result[0]["reason"]
    assert result[0]["values"] == [None] * 3 and result[1]["state"] == "complete"


def test_a_trial_whose_process_dies_each_time_costs_itself_alone(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    everything = world.pool.script["train_fully"]

    def dying(settings: list[str], **others: Any) -> Any:
        if width_of(settings) == 9:
            raise JobLost("trial 0: its process was killed (SIGKILL); tries: 3")
        return everything(settings=settings, **others)

    world.pool.script["train_fully"] = dying
    result, _, _ = batch(world, tmp_path / "s", [a_trial(0, 9), a_trial(1, 8)])
    assert (result[0]["state"], result[0]["rung"]) == ("failed", "all") and "killed (SIGKILL)" in result[0]["reason"]
    assert result[1]["state"] == "complete"


def test_a_cache_is_the_same_folder_for_workers_that_stand_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    given: list[str] = []
    few_epochs = world.pool.script["train_briefly"]
    world.pool.script["train_briefly"] = lambda caches, **others: (
        given.extend(caches) or few_epochs(caches=[], **others)
    )
    caches = ["shared", "file://mine", "s3://bucket/prefix", "/mnt/ours"]
    evaluator = Evaluator(plan(), tmp_path / "s", OBJECTIVES, world.pool, caches)
    evaluator([a_trial(0, 8)], BatchContext(tmp_path / "s", 0, (), (), lambda number, outcome: None))
    here = Path.cwd()
    assert given == [
        str(tmp_path / "s" / "cache"), str(here / "shared"), str(here / "mine"), "s3://bucket/prefix", "/mnt/ours"
    ]  # fmt: skip


def test_a_full_disk_ends_the_search(tmp_path: Path) -> None:
    world = World(tmp_path / "w")

    def full(**_: Any) -> Any:
        raise ResourceError("trial 0: no space left on device")

    world.pool.script["train_fully"] = full
    with pytest.raises(ResourceError, match=r"no space left"):
        batch(world, tmp_path / "s", [a_trial(0, 9)])


def test_weights_over_the_size_end_a_trial_before_anything_is_made_of_it(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    result, _, _ = batch(world, tmp_path / "s", [a_trial(0, 64)], "budget.size_bytes=1000")
    assert (result[0]["state"], result[0]["rung"]) == ("infeasible", "shape")
    assert result[0]["constraints"] == {"size_bytes": 64 * 50 - 1000}
    assert world.pool.did == ["prepare_baseline", "measure_shapes"]


def test_an_untrained_network_over_the_latency_is_not_trained(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    result, _, _ = batch(world, tmp_path / "s", [a_trial(0, 4), a_trial(1, 16)], "budget.latency_p50_ms=3")
    assert (result[1]["state"], result[1]["rung"]) == ("infeasible", "untrained")
    assert result[1]["constraints"] == {"latency_p50_ms": pytest.approx(8 * 0.95 - 3)}
    assert result[0]["state"] == "complete" and set(result[0]["constraints"]) == {"accuracy_drop_pp", "latency_p50_ms"}
    assert world.pool.did.count("train_briefly") == world.pool.did.count("train_fully") == 1


def beside_a_rival(folder: Path) -> list[str]:
    path = folder / "theirs.tflite"
    path.write_bytes(b"\x1c\0\0\0TFL3" + bytes(992))
    return [f"benchmark.rivals=[{{path: {path}}}]", "budget.accuracy_drop_pp=100"]


def test_a_limit_beside_a_reference_model_is_held_in_the_rounds_that_time_it_too(tmp_path: Path) -> None:
    world, settings = World(tmp_path / "w"), beside_a_rival(tmp_path)
    limit = "budget.latency_p50={ratio: 0.5, of: theirs.tflite}"
    result, _, _ = batch(world, tmp_path / "s", [a_trial(0, 4), a_trial(1, 16)], *settings, limit)
    assert (result[1]["state"], result[1]["rung"]) == ("infeasible", "untrained")
    assert result[1]["constraints"] == {"latency_p50": pytest.approx(8 / 4 * 0.95 - 0.5)}
    assert result[1]["reason"].endswith("is at least 1.9 of that of theirs.tflite, over 0.5")
    assert result[0]["state"] == "complete"
    assert result[0]["constraints"]["latency_p50"] == pytest.approx(1 / 4 * 0.95 - 0.5)
    busy = World(tmp_path / "w", slow=1.7)
    again = Evaluator(plan(*settings, limit), tmp_path / "t", OBJECTIVES, busy.pool, replay=tmp_path / "s")
    outcomes = again([a_trial(0, 4), a_trial(1, 16)], BatchContext(tmp_path / "t", 0, (), (), lambda *_: None))
    assert [each["constraints"] for each in outcomes] == [result[0]["constraints"], result[1]["constraints"]]
    assert next(busy.rounds) == 1, "what was measured beside the rival is taken from there"


def test_a_study_that_was_not_measured_beside_the_reference_model_is_measured_again(tmp_path: Path) -> None:
    settings = beside_a_rival(tmp_path)
    batch(World(tmp_path / "w"), tmp_path / "s", [a_trial(0, 4)], *settings)
    world = World(tmp_path / "w")
    limited = plan(*settings, "budget.latency_p50={ratio: 0.5, of: theirs.tflite}")
    evaluator = Evaluator(limited, tmp_path / "t", OBJECTIVES, world.pool, replay=tmp_path / "s")
    [outcome] = evaluator([a_trial(0, 4)], BatchContext(tmp_path / "t", 0, (), (), lambda *_: None))
    assert "latency_p50" in outcome["constraints"] and next(world.rounds) > 1


def test_a_reference_model_that_was_moved_is_timed_where_it_lies_now(tmp_path: Path) -> None:
    world, [rival, *settings] = World(tmp_path / "w"), beside_a_rival(tmp_path)
    settings.append("budget.latency_p50={ratio: 0.5, of: theirs.tflite}")
    batch(world, tmp_path / "s", [a_trial(0, 4)], rival, *settings)
    (tmp_path / "new").mkdir()
    (tmp_path / "theirs.tflite").rename(tmp_path / "new" / "theirs.tflite")
    moved = rival.replace(str(tmp_path), str(tmp_path / "new"))
    _, evaluator, _ = batch(world, tmp_path / "s", [a_trial(1, 8)], moved, *settings)
    assert world.pool.did.count("prepare_baseline") == 2 and evaluator._baseline is not None
    [result] = evaluator._baseline.reference_inputs["files"].values()
    assert result["path"] == str(tmp_path / "new" / "theirs.tflite")


def test_a_size_beside_the_baselines_counts_from_the_anchor(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    limit = ["convert.models=[baseline, student, pruned]", "budget.size={ratio: 125, of: baseline}"]
    result, _, _ = batch(world, tmp_path / "s", [a_trial(0, 64)], *limit)
    assert result[0]["constraints"] == {"size_bytes": 64 * 50 - 125 * len("anchor")}
    assert "of the float baseline" in result[0]["reason"]


def test_without_a_limit_that_a_clock_or_a_size_could_break_nothing_is_timed_untrained(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    batch(world, tmp_path / "s", [a_trial(0, 8)])
    assert world.pool.did == ["prepare_baseline", "measure_shapes", "train_briefly", "train_fully", "time_files"]


def test_a_trial_far_behind_one_that_is_no_larger_is_stopped_after_few_epochs_in_any_order(tmp_path: Path) -> None:
    slow, fast = a_trial(0, 8, "distill.learning_rate=0.001"), a_trial(1, 8)
    for name, trials in (("a", [slow, fast]), ("b", [fast, slow])):
        result, _, _ = batch(World(tmp_path / name), tmp_path / f"s{name}", trials)
        assert (result[0]["state"], result[0]["rung"]) == ("stopped", "few_epochs")
        assert "trial 1 reaches 90.0%" in result[0]["reason"] and result[1]["state"] == "complete"


def test_a_batch_that_was_killed_before_it_was_recorded_is_recorded_as_evaluated(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    slow, fast = a_trial(0, 8, "distill.learning_rate=0.001"), a_trial(1, 8)
    result, _, _ = batch(world, tmp_path / "s", [slow, fast])
    text = len(world.pool.did)
    again, _, context = batch(world, tmp_path / "s", [slow])  # alone, nobody would stop it
    assert again[0] == result[0] and len(world.pool.did) == text and context.baselines


def test_a_batch_that_was_written_before_a_kill_is_still_marked_as_noisy(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    quiet = world.pool.script["time_files"]
    world.pool.script["time_files"] = lambda **given: {**quiet(**given), "disturbed": ["another program"]}
    assert batch(world, tmp_path / "s", [a_trial(0, 8)])[2].is_noisy
    assert batch(world, tmp_path / "s", [a_trial(0, 8)])[2].is_noisy


@pytest.mark.parametrize("text", [None, "", "7", "[]", '{"0": 1}', '{"trials": {"0": 1}, "disturbed": false}'])
def test_outcomes_of_other_settings_are_never_reused(text: str | None, tmp_path: Path) -> None:
    """As of a study whose journal was removed, and whose other files were left."""
    world = World(tmp_path / "w")
    batch(world, tmp_path / "s", [a_trial(0, 8)])
    if text is not None:
        (tmp_path / "s" / "batches" / "0.json").write_text(text)
    assert batch(world, tmp_path / "s", [a_trial(0, 9)])[0][0]["values"][2] == 900.0


def test_the_profile_and_the_anchors_are_made_once_for_a_study(tmp_path: Path) -> None:
    world = World(tmp_path / "w")
    batch(world, tmp_path / "s", [a_trial(0, 8)])
    evaluator = Evaluator(plan(), tmp_path / "s", OBJECTIVES, world.pool)
    evaluator([a_trial(1, 9)], BatchContext(tmp_path / "s", 1, (), (), lambda number, outcome: None))
    assert world.pool.did.count("prepare_baseline") == 1
    (world.folder / "anchor").write_text("another")
    evaluator = Evaluator(plan(), tmp_path / "s", OBJECTIVES, world.pool)
    evaluator([a_trial(2, 10)], BatchContext(tmp_path / "s", 2, (), (), lambda number, outcome: None))
    assert world.pool.did.count("prepare_baseline") == 2


def test_a_config_that_is_edited_meanwhile_ends_the_search_and_mixes_nothing(tmp_path: Path) -> None:
    world, config = World(tmp_path / "w"), tmp_path / "tiny.yaml"
    config.write_text(TINY.read_text())
    evaluator = Evaluator(load_plan(config, checked_before=True), tmp_path / "s", OBJECTIVES, world.pool)
    config.write_text(TINY.read_text().replace("epochs: 12", "epochs: 13"))
    with pytest.raises(ConfigError, match=r"edited while it was being searched"):
        evaluator([a_trial(0, 8)], BatchContext(tmp_path / "s", 0, (), (), lambda number, outcome: None))
    assert world.pool.did == []


def study_of(world: World, folder: Path, replay: Path | None = None, trials: int = 6) -> StudyState:
    space_file = folder.parent / "space.yaml"
    space_file.write_text("space: {distill.student.kwargs.width: {low: 4, high: 40}}\n")
    opened = plan()
    space = Space.load(space_file, opened.values)
    subject = SearchedConfig(opened.run.name, str(opened.path), opened.values, opened.run.budget.model_dump())
    evaluator = Evaluator(opened, folder, space.objectives, world.pool, replay=replay)
    return search(space, space.objectives, evaluator, subject=subject, folder=folder, batch=2, trials=trials)


def test_a_study_that_replays_another_has_its_digest_although_this_hour_measures_otherwise(tmp_path: Path) -> None:
    first = study_of(World(tmp_path / "w"), tmp_path / "first")
    busy = World(tmp_path / "w", slow=1.7)
    assert study_of(busy, tmp_path / "second", replay=tmp_path / "first").digest == first.digest
    assert next(busy.rounds) == 1  # nothing was measured
    assert study_of(World(tmp_path / "w", slow=1.7), tmp_path / "third").digest != first.digest


def test_a_longer_study_begins_with_the_digests_of_a_shorter_one(tmp_path: Path) -> None:
    short = study_of(World(tmp_path / "w"), tmp_path / "first", trials=4)
    longer = study_of(World(tmp_path / "w"), tmp_path / "second", trials=6)
    digests = [each["digest"] for each in longer.row["batches"]]
    assert digests[:2] == [each["digest"] for each in short.row["batches"]] and len(digests) == 3


def test_a_trials_folder_follows_from_its_settings() -> None:
    settings = ["distill.student.kwargs.width=8"]
    assert trial_folder(Path("s"), settings) == trial_folder(Path("s"), tuple(settings))
    assert trial_folder(Path("s"), settings).parent == Path("s/trials") and len(trial_folder(Path("s"), []).name) == 16
