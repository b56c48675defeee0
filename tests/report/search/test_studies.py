"""study.json is read as it was written; an edited, truncated or damaged one is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgekit.core.errors import DataError, EdgekitError, TrustError
from edgekit.core.study_digest import chain_digest
from edgekit.report.search import studies
from tests.report.search import example

Edit = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return example.study()


def written(content: dict[str, Any], folder: Path) -> Path:
    return example.write(content, folder / "study.json")


def rechained(content: dict[str, Any]) -> dict[str, Any]:
    """Digests as whoever edits them all would write them."""
    before = content["key"]
    for batch in content["batches"]:
        before = chain_digest(before, [trial for trial in content["trials"] if trial["batch"] == batch["number"]])
        batch["digest"] = before
    return content


@pytest.mark.parametrize(
    ("name", "content"), example.several(), ids=lambda found: found if isinstance(found, str) else ""
)
def test_every_example_is_read_and_so_is_its_folder(name: str, content: dict[str, Any], tmp_path: Path) -> None:
    study = studies.read(written(content, tmp_path))
    assert studies.read(tmp_path) == study
    assert sum(study.counts.values()) == len(study.trials) == len(content["trials"])
    assert sorted(trial["number"] for trial in study.front) == content["front"]
    assert all(trial["feasible"] for trial in study.front)


def test_the_committed_example_is_what_its_script_writes(whole: dict[str, Any]) -> None:
    assert json.loads(example.STUDY.read_text()) == json.loads(json.dumps(whole))
    assert "made up" in studies.read(example.STUDY).row["ended"]


def test_the_front_begins_with_the_most_accurate(whole: dict[str, Any], tmp_path: Path) -> None:
    accuracies = [trial["values"][0] for trial in studies.read(written(whole, tmp_path)).front]
    assert accuracies == sorted(accuracies, reverse=True)


def faster(content: dict[str, Any]) -> None:
    """Of a trial that was beaten, so that it would be on the front."""
    beaten = next(trial for trial in content["trials"] if trial["feasible"] and trial["number"] not in content["front"])
    beaten["values"][1] = 0.001


EDITS: list[tuple[Edit, str]] = [
    (faster, "is better than|is missing from it"),
    (lambda found: found.pop("anchors"), "anchors is missing"),
    (lambda found: found.update(trials={}), "trials is {}"),
    (lambda found: found["trials"][3].update(number="3"), r"trials\[3\].number is '3'"),
    (lambda found: found["trials"][3].update(state="done"), r"trials\[3\].state is 'done'"),
    (lambda found: found["trials"][0]["values"].append(1.0), "trial 0: 4 values and 3 intervals"),
    (lambda found: found["trials"][0]["values"].__setitem__(0, 98.2), "accuracy is 98.2"),
    (lambda found: found["trials"][0]["intervals"].__setitem__(0, [0.9, 0.8]), "interval of accuracy"),
    (lambda found: found["trials"][0]["parameters"].update({"a.b": 1}), "a.b is not an option of the space"),
    (lambda found: found["trials"][0].update(feasible=not found["trials"][0]["feasible"]), "its constraints say"),
    (lambda found: found["trials"].reverse(), "numbers of the trials are not ascending"),
    (lambda found: found["front"].pop(), "is missing from it"),
    (lambda found: found["front"].append(999), "not a complete trial within the budget"),
    (lambda found: found["batches"].pop(), "its batch 9 does not exist"),
    (lambda found: found["batches"][0].update(digest="0"), "digest is '0'"),
    (lambda found: found["objectives"][0].update(name="beauty"), "'beauty' is none of"),
    (lambda found: found["objectives"][1].update(direction="maximize"), "p50_ms has direction maximize"),
    (lambda found: found.update(name="a\u001b[2J"), "is not a name"),
]


@pytest.mark.parametrize(("edit", "words"), EDITS, ids=[words[:24] for _, words in EDITS])
def test_an_edited_study_is_refused_in_one_line(edit: Edit, words: str, whole: dict[str, Any], tmp_path: Path) -> None:
    content = json.loads(json.dumps(whole))
    edit(content)
    with pytest.raises(DataError, match=words) as refused:
        studies.read(written(content, tmp_path))
    assert "\n" not in str(refused.value) and str(refused.value).startswith(str(tmp_path))


def test_values_that_fit_but_do_not_have_their_digest_are_no_study(whole: dict[str, Any], tmp_path: Path) -> None:
    content = json.loads(json.dumps(whole))
    stopped = next(trial for trial in content["trials"] if trial["state"] == "stopped")
    stopped["parameters"][example.RATE] = 0.05
    with pytest.raises(TrustError, match=rf"batch {stopped['batch'] + 1} do not match its digest"):
        studies.read(written(content, tmp_path))
    assert studies.read(written(rechained(content), tmp_path)).row["key"] == whole["key"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b'{"trials": NaN}', "not JSON"),
        (b"[]", "not a study"),
        (b'{"kind": "field"}', "not a study"),
        (
            b'{"trials": [], "objectives": [], "format": 9, "edgekit": "9.0"}',
            "format 9, but this version of edgekit reads 1",
        ),
    ],
)
def test_the_error_for_a_file_that_is_no_study_is_one_line(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    path.write_bytes(data)
    with pytest.raises(DataError, match=words) as refused:
        studies.read(path)
    assert "\n" not in str(refused.value)


def test_any_cut_and_any_flipped_byte_is_refused_or_changes_nothing_that_counts(
    whole: dict[str, Any], tmp_path: Path
) -> None:
    path = written(example.study(trials=4), tmp_path)
    data, sound = path.read_bytes(), studies.read(path).row
    counts = ("number", "parameters", "state", "values", "constraints")
    refused = 0
    for place in range(0, len(data), 37):
        for changed in (data[:place], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]):
            path.write_bytes(changed)
            try:
                read = studies.read(path).row
            except EdgekitError as error:
                refused += 1
                assert "\n" not in str(error)
                continue
            assert [[trial[key] for key in counts] for trial in read["trials"]] == [
                [trial[key] for key in counts] for trial in sound["trials"]
            ]
    assert refused > 0.6 * 2 * len(data) / 37


def test_no_such_file_says_who_writes_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such study; `edgekit search CONFIG` writes one"):
        studies.read(tmp_path)


def test_the_command_names_another_folder_than_the_usual_one(
    whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    usual = studies.read(written(whole, tmp_path / "artifacts" / "made-up-search"))
    other = studies.read(written(whole, tmp_path / "two words" / "made-up-search"))
    assert usual.command(6) == "edgekit search configs/digits.yaml --take 6"
    assert other.command(6) == "edgekit search configs/digits.yaml --out 'two words' --take 6"
