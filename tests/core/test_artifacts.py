"""Sealed artifacts: what is sealed can be trusted, what is not sealed cannot be mistaken for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import StageError, TrustError

DATA = "d" * 64


def make(folder: Path, stage: str = "profile", source: Artifact | None = None, text: str = "weights") -> Artifact:
    out = artifacts.begin(folder / stage)
    (out / "model").mkdir()
    (out / "model" / "weights").write_text(text)
    (out / artifacts.EVIDENCE / "timings.json").write_text("1.0")
    return artifacts.seal(out, stage=stage, source=source, data_digest=DATA, config={"seed": 1}, metrics={"a": 0.5})


def test_a_sealed_folder_loads_with_everything_it_was_sealed_with(tmp_path: Path) -> None:
    sealed = make(tmp_path)
    loaded = artifacts.load(tmp_path / "profile")
    assert loaded == sealed
    assert loaded.metrics == {"a": 0.5}
    assert loaded.file("model/weights").read_text() == "weights"
    artifacts.verify(loaded)


def test_an_unfinished_folder_is_no_artifact(tmp_path: Path) -> None:
    artifacts.begin(tmp_path / "profile")
    with pytest.raises(StageError, match="no finished artifact"):
        artifacts.load(tmp_path / "profile")


def test_a_changed_file_is_named(tmp_path: Path) -> None:
    sealed = make(tmp_path)
    (tmp_path / "profile/model/weights").write_text("other")
    with pytest.raises(TrustError, match="model/weights"):
        artifacts.verify(sealed)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    sealed = make(tmp_path)
    (tmp_path / "profile/model/weights").unlink()
    with pytest.raises(TrustError, match="model/weights"):
        sealed.file("model/weights")


def test_an_unknown_file_says_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="it holds evidence/timings.json, model/weights"):
        make(tmp_path).file("nothing")


@pytest.mark.parametrize("field", ["stage", "config", "files", "data_digest", "digest", "key", "metrics", "versions"])
def test_an_edited_record_is_refused(tmp_path: Path, field: str) -> None:
    make(tmp_path)
    record = tmp_path / "profile" / artifacts.RECORD
    values = json.loads(record.read_text())
    values[field] = {"changed": "0" * 64} if isinstance(values[field], dict) else "x" * 64
    record.write_text(json.dumps(values))
    with pytest.raises(TrustError, match="digest does not match"):
        artifacts.load(tmp_path / "profile")


def test_a_broken_record_is_refused(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "profile" / artifacts.RECORD).write_text("{")
    with pytest.raises(TrustError, match="not an artifact record"):
        artifacts.load(tmp_path / "profile")


def test_evidence_does_not_change_the_digest_but_content_does(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in "abc")
    one = make(first)
    (artifacts.begin(second / "profile") / "model").mkdir()
    (second / "profile/model/weights").write_text("weights")
    (second / "profile/evidence/timings.json").write_text("2.0")
    two = artifacts.seal(
        second / "profile", stage="profile", source=None, data_digest=DATA, config={"seed": 1}, metrics={"a": 0.7}
    )
    assert one.digest == two.digest
    assert one.digest != make(third, text="others").digest


def test_ancestors_are_followed_by_digest(tmp_path: Path) -> None:
    first = make(tmp_path, "profile")
    second = make(tmp_path, "distill", first)
    third = make(tmp_path, "prune", second)
    assert third.ancestor("profile") == first
    assert third.find_ancestor("profile") == first and third.find_ancestor("quantize") is None
    with pytest.raises(StageError, match="no ancestor 'bundle'"):
        third.ancestor("bundle")
    make(tmp_path, "distill", first, text="retrained")
    with pytest.raises(StageError, match="a different distill"):
        third.ancestor("profile")


def test_what_a_sealed_artifact_was_made_of_gives_its_key(tmp_path: Path) -> None:
    sealed = make(tmp_path)
    assert sealed.cache_inputs.key == sealed.key
    child = make(tmp_path, "distill", sealed)
    assert child.cache_inputs.source == sealed.digest
    assert child.cache_inputs.key == child.key


def test_a_sealed_artifact_says_when_and_how_long(tmp_path: Path) -> None:
    took = make(tmp_path).took
    assert took["seconds"] >= 0
    assert took["finished"].endswith("+00:00")


def test_publishing_replaces_the_earlier_artifact_whole(tmp_path: Path) -> None:
    make(tmp_path)
    working = tmp_path / ".profile.partial"
    make(working, text="new")
    artifacts.publish(working / "profile", tmp_path / "profile")
    assert artifacts.load(tmp_path / "profile").file("model/weights").read_text() == "new"
    assert not list(tmp_path.glob(".profile.previous"))


class TestSettle:
    """What a kill can leave behind, and what is made of it."""

    def kinds(self, folder: Path) -> tuple[Path, Path, Path]:
        return folder / ".profile.partial", folder / "profile", folder / ".profile.previous"

    def put(self, folder: Path, path: Path, text: str) -> Artifact:
        made = make(folder / "elsewhere", text=text)
        made.path.rename(path)
        return artifacts.load(path)

    def test_sealed_but_not_yet_in_its_place(self, tmp_path: Path) -> None:
        working, final, _ = self.kinds(tmp_path)
        sealed = self.put(tmp_path, working, "new")
        artifacts.recover(working, final, sealed.key)
        assert artifacts.load(final).file("model/weights").read_text() == "new"
        assert not working.exists()

    def test_between_the_two_renames(self, tmp_path: Path) -> None:
        working, final, previous = self.kinds(tmp_path)
        self.put(tmp_path, working, "new")
        self.put(tmp_path, previous, "old")
        artifacts.recover(working, final, None)
        assert artifacts.load(final).file("model/weights").read_text() == "new"
        assert not previous.exists()

    def test_an_unfinished_attempt_goes_and_what_was_there_comes_back(self, tmp_path: Path) -> None:
        working, final, previous = self.kinds(tmp_path)
        self.put(tmp_path, previous, "old")
        artifacts.begin(working)
        artifacts.recover(working, final, "any")
        assert artifacts.load(final).file("model/weights").read_text() == "old"
        assert not working.exists()

    def test_a_finished_artifact_with_the_expected_key_stays(self, tmp_path: Path) -> None:
        working, final, _ = self.kinds(tmp_path)
        kept = self.put(tmp_path, final, "old")
        self.put(tmp_path, working, "new")
        artifacts.recover(working, final, kept.key)
        assert artifacts.load(final).file("model/weights").read_text() == "old"
        assert not working.exists()

    def test_a_sealed_folder_of_another_config_does_not_replace_the_last(self, tmp_path: Path) -> None:
        working, final, _ = self.kinds(tmp_path)
        self.put(tmp_path, final, "old")
        self.put(tmp_path, working, "new")
        artifacts.recover(working, final, "another key")
        assert artifacts.load(final).file("model/weights").read_text() == "old"

    def test_a_damaged_folder_is_never_put_in_place(self, tmp_path: Path) -> None:
        working, final, _ = self.kinds(tmp_path)
        sealed = self.put(tmp_path, working, "new")
        (working / "model/weights").write_text("torn")
        artifacts.recover(working, final, sealed.key)
        assert not final.exists()


def test_what_is_not_sealed_is_not_published(tmp_path: Path) -> None:
    sealed = make(tmp_path)
    artifacts.begin(tmp_path / ".partial")
    with pytest.raises(StageError):
        artifacts.publish(tmp_path / ".partial", tmp_path / "profile")
    assert artifacts.load(tmp_path / "profile") == sealed


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    artifacts.write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        artifacts.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["value.json"]
