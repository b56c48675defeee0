"""A finished stage goes through a shared folder to another run, byte for byte, or it does not go at all."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.errors import ConfigError, TrustError
from edgekit.core.hashing import digest
from edgekit.core.run_folder import failed_notebook, notebook_name
from edgekit.workbook import state
from edgekit.workbook.plan import workbook_folder
from edgekit.workbook.shared_cache import entry, open_cache
from tests.workbook.shared_cache.stages import DATA, opened, receive, seal


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_run_gets_the_artifact_and_its_executed_notebook(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a")
    executed = receive(tmp_path / "a", artifact)
    opened(tmp_path / "cache")[0].push(artifact, tmp_path / "a")
    cache, lines = opened(tmp_path / "cache")
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert files(tmp_path / "b" / "prune") == files(tmp_path / "a" / "prune")
    pulled = artifacts.load(tmp_path / "b" / "prune")
    source = workbook_folder("notebooks") / executed.name
    receipt = state.find_receipt(tmp_path / "b" / "notebooks", pulled, source)
    assert receipt is not None
    assert (tmp_path / "b" / "notebooks" / executed.name).read_text() == "executed"
    assert (lines, cache.pulled) == ([], ["prune"])


def test_bundles_lie_where_a_run_has_them(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a", "bundle")
    cache, _ = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert cache.pull(artifact.key, tmp_path / "b", "bundle")
    assert artifacts.is_intact(tmp_path / "b" / "bundles")


def test_a_key_that_nobody_pushed_is_not_there(tmp_path: Path) -> None:
    cache, lines = opened(tmp_path / "cache")
    assert not cache.pull("0" * 64, tmp_path / "b", "prune")
    assert not (tmp_path / "b").exists()
    assert lines == []


def test_an_artifact_without_its_notebook_gets_it_from_a_later_push(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a")
    cache, _ = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert not (tmp_path / "b" / "notebooks").exists()
    receive(tmp_path / "a", artifact)
    cache.push(artifact, tmp_path / "a")
    assert cache.pull(artifact.key, tmp_path / "c", "prune")
    assert (tmp_path / "c" / "notebooks" / notebook_name("prune")).is_file()


def test_what_was_there_before_a_pull_is_replaced_by_what_the_key_wants(tmp_path: Path) -> None:
    other, artifact = seal(tmp_path / "b", seed=2), seal(tmp_path / "a")
    cache, _ = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert other.key != artifact.key
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert artifacts.load(tmp_path / "b" / "prune").digest == artifact.digest


def test_the_same_result_with_other_timings_is_no_alarm_and_stays_as_it_was(tmp_path: Path) -> None:
    first, second = seal(tmp_path / "a"), seal(tmp_path / "b", timings="2.0")
    cache, lines = opened(tmp_path / "cache")
    cache.push(first, tmp_path / "a")
    before = files(tmp_path / "cache")
    cache.push(second, tmp_path / "b")
    assert files(tmp_path / "cache") == before
    assert lines == []


def test_another_digest_under_the_same_key_is_an_alarm_that_names_both(tmp_path: Path) -> None:
    first, second = seal(tmp_path / "a"), seal(tmp_path / "b", weights=b"other")
    assert first.key == second.key
    cache, _ = opened(tmp_path / "cache")
    cache.push(first, tmp_path / "a")
    before = files(tmp_path / "cache")
    with pytest.raises(TrustError, match="not reproducible") as raised:
        cache.push(second, tmp_path / "b")
    output = str(raised.value)
    assert first.digest[:12] in output
    assert second.digest[:12] in output
    assert output.count(entry.describe_machine(entry.machine_facts("bits"))) == 2
    assert raised.value.exit_code == 8
    assert files(tmp_path / "cache") == before
    assert artifacts.load(tmp_path / "b" / "prune").digest == second.digest


def test_a_decision_that_other_latencies_made_is_no_alarm(tmp_path: Path) -> None:
    slow = {"winners": {"onnx": "a"}, "too_slow": [], "buys_nothing": []}
    first = seal(tmp_path / "a", "benchmark", measured=slow)
    second = seal(tmp_path / "b", "benchmark", measured={**slow, "too_slow": ["a"]})
    cache, lines = opened(tmp_path / "cache")
    cache.push(first, tmp_path / "a")
    cache.push(second, tmp_path / "b")
    assert len(lines) == 1
    assert "other latencies; this run keeps its own" in lines[0]
    assert cache.pull(first.key, tmp_path / "c", "benchmark")
    assert artifacts.load(tmp_path / "c" / "benchmark").digest == first.digest


def test_the_same_decision_with_another_accuracy_is_an_alarm(tmp_path: Path) -> None:
    same = {"winners": {"onnx": "a"}, "too_slow": [], "buys_nothing": []}
    first = seal(tmp_path / "a", "benchmark", measured=same)
    second = seal(tmp_path / "b", "benchmark", measured=same, weights=b"other")
    cache, _ = opened(tmp_path / "cache")
    cache.push(first, tmp_path / "a")
    with pytest.raises(TrustError):
        cache.push(second, tmp_path / "b")


@pytest.mark.parametrize(
    ("stage", "measured", "fact", "pulled"),
    [
        ("prune", None, "processor", True),
        ("prune", None, "instructions", False),
        ("prune", None, "python", False),
        ("distill", None, "processor", True),
        ("distill", {"in_time": ["a"], "trained": ["a"]}, "processor", False),
        ("benchmark", {"winners": {}, "too_slow": [], "buys_nothing": []}, "cores", False),
        ("profile", None, "processor", False),
    ],
)
def test_a_machine_takes_only_what_it_would_have_made_or_measured_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, measured: object, fact: str, pulled: bool
) -> None:
    artifact = seal(tmp_path / "a", stage, measured=measured)
    cache, _ = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    own = entry.machine_facts

    def elsewhere(scope: entry.Scope) -> dict[str, object]:
        here = own(scope)
        return {**here, fact: "another"} if fact in here else here

    monkeypatch.setattr(entry, "machine_facts", elsewhere)
    assert cache.pull(artifact.key, tmp_path / "b", stage) is pulled


@pytest.mark.parametrize("harm", ["changed", "truncated", "missing", "longer", "swapped"])
@pytest.mark.parametrize("what", ["model/weights", "artifact.json"])
def test_bytes_that_are_not_what_their_name_says_are_not_taken(tmp_path: Path, harm: str, what: str) -> None:
    artifact = seal(tmp_path / "a")
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    blobs = {path.read_bytes(): path for path in (tmp_path / "cache" / "cas").iterdir()}
    content = (artifact.path / what).read_bytes()
    blob = blobs.pop(content)
    if harm == "missing":
        blob.unlink()
    else:
        harmed = {
            "changed": content.replace(b"w", b"v", 1),
            "truncated": content[:-1],
            "longer": content * 2,
            "swapped": next(iter(blobs)),
        }
        blob.write_bytes(harmed[harm])
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert not (tmp_path / "b" / "prune").exists()
    assert list((tmp_path / "b").iterdir()) == []
    assert len(lines) == 1
    assert "prune is not read from it" in lines[0]


@pytest.mark.usefixtures("no_recursion_limit")
@pytest.mark.parametrize("harm", ["[]", "{}", "", "\x00" * 100, "[" * 100_000, "edited", "swapped", "huge"])
def test_a_damaged_entry_is_not_used_and_not_overwritten(tmp_path: Path, harm: str) -> None:
    artifact, other = seal(tmp_path / "a"), seal(tmp_path / "o", seed=2)
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    (path,) = (tmp_path / "cache" / "keys").iterdir()
    before = path.read_text()
    if harm == "edited":
        harm = json.dumps({**json.loads(before), "host": "elsewhere"})
    elif harm == "huge":
        harm = before + " " * (5 << 20)
    elif harm == "swapped":
        cache.push(other, tmp_path / "o")
        (another,) = set((tmp_path / "cache" / "keys").iterdir()) - {path}
        harm = another.read_text()
    path.write_text(harm)
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert not (tmp_path / "b" / "prune").exists()
    cache.push(artifact, tmp_path / "a")
    assert path.read_text() == harm
    assert len(lines) == 2


def test_a_notebook_that_found_the_budget_missed_is_taken_with_its_verdict(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a", "benchmark")
    source = workbook_folder("notebooks") / notebook_name("benchmark")
    failed = failed_notebook(tmp_path / "a", "benchmark")
    failed.parent.mkdir()
    failed.write_text("missed")
    state.write_receipt(failed.parent, artifact, source, failed, 3, 1.0)
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    assert cache.pull(artifact.key, tmp_path / "b", "benchmark")
    receipt = state.find_receipt(tmp_path / "b" / "notebooks", artifacts.load(tmp_path / "b" / "benchmark"), source)
    assert receipt is not None
    assert (receipt.exit_code, receipt.executed) == (3, failed.name)
    assert lines == []


@pytest.mark.parametrize("name", ["../../stolen.ipynb", "/tmp/stolen.ipynb", "02_distill.ipynb", ".prune.receipt.json"])
def test_a_notebook_goes_nowhere_but_to_its_place(tmp_path: Path, name: str) -> None:
    """A store may name any file in an entry that is in order otherwise."""
    artifact = seal(tmp_path / "a")
    receive(tmp_path / "a", artifact)
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    (path,) = (path for path in (tmp_path / "cache" / "keys").iterdir() if len(path.name.split(".")) == 4)
    noted = entry.parse_notebook(path.read_bytes(), path.name)
    path.write_bytes(entry.dump(replace(noted, receipt=replace(noted.receipt, executed=name))))
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert list((tmp_path / "b").iterdir()) == [tmp_path / "b" / "prune"]
    assert not list(tmp_path.rglob("*stolen*"))
    assert len(lines) == 1


@pytest.mark.parametrize("name", ["../stolen", "/tmp/stolen", "model/../../stolen", "a//b", "artifact.json"])
def test_a_stage_goes_nowhere_but_to_its_place(tmp_path: Path, name: str) -> None:
    """A record that was forged as a whole has digests that are in order."""
    artifact = seal(tmp_path / "a")
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    fields = json.loads((artifact.path / "artifact.json").read_text())
    fields["files"][name] = fields["files"].pop("model/weights")
    content = {each: sha for each, sha in fields["files"].items() if not each.startswith("evidence/")}
    names = ("stage", "parent", "config")
    fields["digest"] = digest({**{each: fields[each] for each in names}, "data": DATA, "files": content})
    hashed = {each: value for each, value in fields.items() if each not in ("format", "record_sha256")}
    record = json.dumps({**fields, "record_sha256": digest(hashed)}).encode()
    (path,) = (tmp_path / "cache" / "keys").iterdir()
    own = entry.parse(path.read_bytes(), path.name)
    sizes = {**own.sizes_bytes, name: own.sizes_bytes["model/weights"], "artifact.json": len(record)}
    del sizes["model/weights"]
    sha = hashlib.sha256(record).hexdigest()
    (tmp_path / "cache" / "cas" / sha).write_bytes(record)
    path.write_bytes(entry.dump(replace(own, record=sha, digest=fields["digest"], sizes_bytes=sizes)))
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert list((tmp_path / "b").iterdir()) == []
    assert not list(tmp_path.rglob("*stolen*"))
    assert len(lines) == 1
    assert "lists other files than its record" in lines[0]


def test_a_damaged_notebook_costs_the_notebook_only(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a")
    executed = receive(tmp_path / "a", artifact)
    cache, lines = opened(tmp_path / "cache")
    cache.push(artifact, tmp_path / "a")
    (blob,) = (path for path in (tmp_path / "cache" / "cas").iterdir() if path.read_text() == "executed")
    blob.write_text("EXECUTED")
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert artifacts.is_intact(tmp_path / "b" / "prune")
    assert not (tmp_path / "b" / "notebooks" / executed.name).exists()
    assert len(lines) == 1
    assert "executed notebook of prune" in lines[0]


@pytest.mark.parametrize("url", ["", "file://", "ftp://there/x", "http://there/x", "s3://"])
def test_another_url_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(ConfigError, match="s3://BUCKET/PREFIX") as raised:
        open_cache(url)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "s3://bucket/x?secret=secret", "ftp://a:secret@b/c"])
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        open_cache(url)
    assert "secret" not in str(raised.value)


def test_a_folder_may_be_named_as_a_file_url(tmp_path: Path) -> None:
    artifact = seal(tmp_path / "a")
    opened(f"file://{tmp_path}/cache")[0].push(artifact, tmp_path / "a")
    assert opened(tmp_path / "cache")[0].pull(artifact.key, tmp_path / "b", "prune")
