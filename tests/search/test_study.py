"""A study always ends with the same digest, and a folder that cannot be continued is refused with the reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import ConfigError, ResourceError, StageError, TrustError
from edgekit.core.schema.study import StudyRow
from edgekit.search.journal import FILE
from edgekit.search.study import SearchedConfig
from edgekit.search.trial import BatchContext, Trial, TrialOutcome
from tests.search import studies

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study of 16 trials that nothing disturbed, by TPE."""
    folder = tmp_path_factory.mktemp("whole")
    studies.run(folder / "study", folder, sampler_name="tpe")
    return folder / "study"


def read(folder: Path) -> StudyRow:
    result: StudyRow = json.loads((folder / "study.json").read_text())
    return result


def digests(folder: Path) -> list[str]:
    return [row["digest"] for row in read(folder)["batches"]]


class TestDigest:
    @pytest.mark.parametrize("order", ["first to last", "last to first", "side by side"])
    def test_any_order_of_completion(self, whole: Path, tmp_path: Path, order: str) -> None:
        gate = threading.Lock()

        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            context.baselines = [{"name": "baseline", "target": "tflite", "p50_ms": 1.0}]
            result: dict[int, TrialOutcome] = {}

            def one(trial: Trial) -> None:
                result[trial.number] = studies.outcome(trial.parameters)
                with gate:
                    context.record_outcome(trial.number, result[trial.number])

            if order == "side by side":
                with ThreadPoolExecutor(4) as pool:
                    list(pool.map(one, trials))
            else:
                for trial in trials if order == "first to last" else reversed(trials):
                    one(trial)
            return [result[trial.number] for trial in trials]

        study = studies.run(tmp_path / "study", tmp_path, sampler_name="tpe", evaluate=evaluate)
        assert study.digest == digests(whole)[-1]
        assert study.row["trials"] == read(whole)["trials"]

    def test_a_shorter_study_goes_on_to_that_of_a_longer_one(self, whole: Path, tmp_path: Path) -> None:
        short = studies.run(tmp_path / "study", tmp_path, sampler_name="tpe", trials=8)
        assert digests(whole)[:2] == [row["digest"] for row in short.row["batches"]]
        assert studies.run(tmp_path / "study", tmp_path, trials=16).digest == digests(whole)[-1]

    def test_processes_whose_texts_hash_differently(self, whole: Path, tmp_path: Path) -> None:
        words = [
            sys.executable,
            "-m",
            "tests.search.studies",
            str(tmp_path / "study"),
            json.dumps({"sampler_name": "tpe"}),
        ]
        result = subprocess.run(
            words, capture_output=True, text=True, check=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": "7"}
        )
        assert result.stdout.split()[-1] == digests(whole)[-1]

    def test_another_value_another_digest(self, whole: Path, tmp_path: Path) -> None:
        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            result = [studies.outcome(trial.parameters) for trial in trials]
            if context.batch == 1:
                result[0]["values"] = [value and value * 1.0000001 for value in result[0]["values"]]
            return result

        result = studies.run(tmp_path / "study", tmp_path, sampler_name="tpe", trials=8, evaluate=evaluate).row[
            "batches"
        ]
        assert (result[0]["digest"], result[1]["digest"] == digests(whole)[1]) == (digests(whole)[0], False)

    def test_a_gaussian_process_goes_on_to_the_same_digest(self, tmp_path: Path) -> None:
        """Its model proposes trials from the eleventh on."""
        options: dict[str, Any] = {
            "sampler_name": "gp",
            "batch": 2,
            "trials": 12,
            "text": studies.SMALL,
            "evaluate": studies.two_objectives,
        }
        at_once = studies.run(tmp_path / "one", tmp_path, **options)
        studies.run(tmp_path / "two", tmp_path, **{**options, "trials": 10})
        assert studies.run(tmp_path / "two", tmp_path, **options).digest == at_once.digest


class TestJournal:
    def test_cut_at_any_byte_it_goes_on_to_the_same_digest(self, whole: Path, tmp_path: Path) -> None:
        data = (whole / FILE).read_bytes()
        for number, length in enumerate(range(len(data) - 1, data.index(b"\n"), -len(data) // 14)):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / FILE).write_bytes(data[:length])
            evaluated: list[int] = []

            def evaluate(
                trials: Sequence[Trial], context: BatchContext, seen: list[int] = evaluated
            ) -> list[TrialOutcome]:
                seen += [trial.number for trial in trials]
                return studies.evaluate(trials, context)

            assert studies.run(folder, tmp_path, evaluate=evaluate).digest == digests(whole)[-1]
            kept = sum(b'{"anchors"' in line[:10] for line in data[:length].split(b"\n")[:-1])
            assert len(evaluated) <= 16 - kept

    def test_a_finished_study_is_read_and_nothing_is_evaluated(self, whole: Path, tmp_path: Path) -> None:
        shutil.copytree(whole, tmp_path / "study")
        (tmp_path / "study" / "study.json").unlink()

        def never(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            raise AssertionError(trials)

        assert studies.run(tmp_path / "study", tmp_path, evaluate=never).row == read(whole)

    def test_a_value_that_was_changed_is_noticed(self, whole: Path, tmp_path: Path) -> None:
        shutil.copytree(whole, tmp_path / "study")
        text = (tmp_path / "study" / FILE).read_text()
        (tmp_path / "study" / FILE).write_text(text.replace('"state":"complete"', '"state":"stopped"', 1))
        with pytest.raises(
            TrustError, match=r"trials.jsonl: line 7 records the digest \w{16} for trials whose digest is \w{16}; "
        ):
            studies.run(tmp_path / "study", tmp_path)

    @pytest.mark.parametrize("line", ['{"trial": 0}', '{"batch": 3}', '{"asked": 3}', '{"other": 1}'])
    def test_a_line_of_another_kind_is_reported(self, whole: Path, tmp_path: Path, line: str) -> None:
        shutil.copytree(whole, tmp_path / "study")
        lines = (tmp_path / "study" / FILE).read_text().splitlines()
        (tmp_path / "study" / FILE).write_text("\n".join([lines[0], line, *lines[1:], ""]))
        with pytest.raises(TrustError, match=r"trials.jsonl: line \d+ is not a line of a study|has the digest"):
            studies.run(tmp_path / "study", tmp_path)


class TestOtherKey:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"seed": 2}, "another seed;"),
            ({"batch": 8}, "another batch;"),
            ({"subject": SearchedConfig("formula", "", {"name": "other"}, {})}, "another config;"),
            ({"text": studies.SPACE.replace("high: 64", "high: 60")}, "another space;"),
            ({"text": "objectives: [accuracy]\n" + studies.SPACE}, "another objectives;"),
            ({"first": [{"model.kwargs.width": 8}]}, "another first;"),
            ({"sampler_name": "gp"}, "another sampler;"),
            ({"seed": 2, "batch": 8}, "another batch and another seed;"),
        ],
    )
    def test_its_folder_is_refused_with_what_differs(
        self, whole: Path, tmp_path: Path, options: dict[str, Any], words: str
    ) -> None:
        before = (whole / FILE).read_bytes()
        with pytest.raises(ConfigError, match=f"holds a study with {words} choose another folder, or remove it"):
            studies.run(whole, tmp_path, **options)
        assert (whole / FILE).read_bytes() == before

    def test_a_study_keeps_its_sampler_however_long_it_gets(self, tmp_path: Path) -> None:
        assert studies.run(tmp_path / "study", tmp_path, trials=4).row["sampler"]["name"] == "gp"
        text = "space:\n  prune.ratio: [0.0, 0.1]\n  model.kwargs.width: [8, 16]\n  distill.learning_rate: [0.1]\n"
        studies.run(tmp_path / "other", tmp_path, text=text, trials=4)
        result = studies.run(tmp_path / "other", tmp_path, text=text, trials=400).row
        assert (result["sampler"]["name"], result["ended"]) == ("gp", "every point")

    def test_a_file_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_text('{"other": 1}\n')
        with pytest.raises(ConfigError, match="not a journal that this version of edgekit can read"):
            studies.run(tmp_path, tmp_path)

    def test_one_that_was_timed_in_another_way(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as before:
            before.setattr("edgekit.search.study.JOURNAL_FORMAT", 1)
            studies.run(tmp_path / "study", tmp_path, trials=4)
        with pytest.raises(ConfigError, match="not a journal that this version of edgekit can read"):
            studies.run(tmp_path / "study", tmp_path, trials=8)


class TestRow:
    def test_everything_that_a_reader_needs_is_there(self, whole: Path) -> None:
        row = read(whole)
        assert row["ended"] == "trials" and len(row["trials"]) == 16 and len(row["batches"]) == 4
        assert [trial["number"] for trial in row["trials"]] == list(range(16))
        assert [trial["batch"] for trial in row["trials"]] == [number // 4 for number in range(16)]
        volumes = [batch["hypervolume"] for batch in row["batches"]]
        assert volumes == sorted(volumes) and volumes[-1] > 0
        assert row["anchors"] == [{"name": "baseline", "target": "tflite", "p50_ms": 1.0}]
        assert row["baseline_accuracy"] == 0.95
        trials = {trial["number"]: trial for trial in row["trials"]}
        assert row["front"] and all(trials[number]["feasible"] for number in row["front"])
        assert row["reference"][0] < min(trials[number]["values"][0] or 0 for number in row["front"])

    def test_a_point_that_is_proposed_twice_is_not_evaluated_again(self, tmp_path: Path) -> None:
        evaluated: list[int] = []

        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            evaluated.extend(trial.number for trial in trials)
            return studies.evaluate(trials, context)

        same = {"model.kwargs.kind": "plain", "model.kwargs.width": 8, "distill.learning_rate": 0.1, "prune.ratio": 0.0}
        first = [same, same, {**same, "prune.ratio": 0.5}, same, same]
        row = studies.run(
            tmp_path / "study", tmp_path, sampler_name="random", first=first, trials=8, evaluate=evaluate
        ).row
        assert evaluated == [0, 2, 5, 6, 7]
        assert [trial["same_as"] for trial in row["trials"]] == [None, 0, None, 0, 0, None, None, None]
        assert row["trials"][4]["values"] == row["trials"][0]["values"]
        assert row["trials"][4]["took_s"] == {} != row["trials"][0]["took_s"]

    def test_what_is_no_number_is_a_failed_trial_with_its_reason(self, tmp_path: Path) -> None:
        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            result = studies.evaluate(trials, context)
            result[0].update({"state": "complete", "values": [float("nan"), 1.0, 2.0]})
            result[1].update({"state": "complete", "values": [0.5, 0.0, None]})
            return result

        row = studies.run(tmp_path / "study", tmp_path, sampler_name="random", trials=4, evaluate=evaluate).row
        assert [trial["state"] for trial in row["trials"][:2]] == ["failed", "failed"]
        assert row["trials"][0]["reason"] == "accuracy: got nan"
        assert row["trials"][1]["reason"] == "p50_ms of tflite: got 0.0; bytes of tflite: got None"

    def test_an_evaluation_of_another_form_is_an_error(self, tmp_path: Path) -> None:
        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            return [{**result, "values": [1.0]} for result in studies.evaluate(trials, context)]

        with pytest.raises(StageError, match=r"an evaluation returned \[1, 3\] values and intervals for 3 objectives"):
            studies.run(tmp_path / "study", tmp_path, sampler_name="random", evaluate=evaluate)


class TestEnd:
    def test_after_an_interruption_the_front_so_far_is_there(self, whole: Path, tmp_path: Path) -> None:
        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            if context.batch == 2:
                context.record_outcome(trials[1].number, studies.outcome(trials[1].parameters))
                raise KeyboardInterrupt
            return studies.evaluate(trials, context)

        with pytest.raises(KeyboardInterrupt):
            studies.run(tmp_path / "study", tmp_path, sampler_name="tpe", evaluate=evaluate)
        row = read(tmp_path / "study")
        assert (row["ended"], len(row["trials"]), bool(row["front"])) == ("interrupted", 8, True)
        assert studies.run(tmp_path / "study", tmp_path).digest == digests(whole)[-1]

    def test_minutes_never_end_the_first_batch_and_always_the_second(self, tmp_path: Path) -> None:
        for count in (1, 2):
            row = studies.run(tmp_path / "study", tmp_path, sampler_name="random", trials=None, minutes=1e-9).row
            assert (row["ended"], len(row["batches"])) == ("minutes", count)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"trials": 0}, "trials: got 0; give a finite number above 0"),
            ({"batch": -1}, "batch: got -1; give a finite number above 0"),
            ({"minutes": float("nan")}, "minutes: got nan; give a finite number above 0"),
            ({"minutes": float("inf")}, "minutes: got inf; give a finite number above 0"),
            ({"trials": None}, "trials and minutes: neither is set"),
        ],
    )
    def test_numbers_that_make_no_search_are_refused(self, tmp_path: Path, options: dict[str, Any], words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            studies.run(tmp_path / "study", tmp_path, **options)
        assert not (tmp_path / "study").exists()

    def test_two_at_once_do_not_share_a_folder(self, tmp_path: Path) -> None:
        def evaluate(trials: Sequence[Trial], context: BatchContext) -> list[TrialOutcome]:
            with pytest.raises(ResourceError, match="in use by `edgekit search`"):
                studies.run(tmp_path / "study", tmp_path, sampler_name="random")
            return studies.evaluate(trials, context)

        studies.run(tmp_path / "study", tmp_path, sampler_name="random", trials=4, evaluate=evaluate)
