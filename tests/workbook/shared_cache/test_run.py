"""`edgekit run --cache`: a second machine finishes a finished run, and no cache can harm one."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.config import STAGES
from edgekit.core.run_folder import notebook_name, stage_folder
from edgekit.workbook.shared_cache import entry, open_cache
from edgekit.workbook.shared_cache.entry import Entry
from tests.conftest import TINY, FinishedRun, run_edgekit


def files(folder: Path) -> dict[str, bytes]:
    """What a run has made, by name; what it does not need is left out."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in paths}
    mine = (".data.json", ".plan.json", ".lock", ".stage.lock", ".training", "notebooks/")
    return {name: path.read_bytes() for name, path in names.items() if not name.startswith(mine)}


@pytest.fixture
def finished(tiny_run: FinishedRun, tmp_path: Path) -> Path:
    """The folder that holds a copy of the finished run."""
    shutil.copytree(tiny_run.folder, tmp_path / "first" / "tiny")
    return tmp_path / "first"


def test_a_second_machine_finishes_a_finished_run_without_a_notebook(finished: Path, tmp_path: Path) -> None:
    cache, second = tmp_path / "cache", tmp_path / "second"
    first_run = run_edgekit("run", str(TINY), "--out", str(finished), "--cache", str(cache))
    assert first_run.returncode == 0, first_run.stderr
    assert f"cache {cache}: 0 stages reused from it, 7 stored in it" in first_run.stdout
    second_run = run_edgekit("run", str(TINY), "--out", str(second), EDGEKIT_CACHE=f" , {cache}")
    assert second_run.returncode == 0, second_run.stderr
    assert [line for line in second_run.stdout.splitlines() if "taken from" in line] == [
        f"{stage}: taken from {cache} (key {artifacts.load(stage_folder(second / 'tiny', stage)).key[:12]})"
        for stage in STAGES
    ]
    assert f"cache {cache}: 7 stages reused from it, 0 stored in it" in second_run.stdout
    for stage in STAGES:
        log = f"{stage}.log"  # a kernel's last words: none was started
        executed = notebook_name(stage)
        assert not (second / "tiny" / "notebooks" / log).exists()
        same = ((run / "tiny" / "notebooks" / executed).read_bytes() for run in (finished, second))
        assert len(set(same)) == 1
    assert files(second / "tiny") == files(finished / "tiny")
    again = run_edgekit("run", str(TINY), "--out", str(second))
    assert "Nothing has changed since this run finished" in again.stdout


def test_another_result_under_a_key_ends_the_run_with_8_and_spoils_nothing(finished: Path, tmp_path: Path) -> None:
    artifact = artifacts.load(stage_folder(finished / "tiny", "prune"))
    before = files(finished / "tiny")
    elsewhere = dataclasses.replace(Entry.from_artifact(artifact), digest="ab" * 32, host="elsewhere")
    cache = tmp_path / "cache"
    path = cache / entry.entry_path(artifact.key, entry.scope_of(artifact))
    path.parent.mkdir(parents=True)
    path.write_bytes(entry.dump(elsewhere))
    done = run_edgekit("run", str(TINY), "--out", str(finished), "--cache", str(cache))
    assert done.returncode == 8
    assert "edgekit: prune: not reproducible" in done.stderr
    assert artifact.digest[:12] in done.stderr
    assert "abababababab on elsewhere (" in done.stderr
    assert json.loads(path.read_bytes())["digest"] == "ab" * 32
    assert files(finished / "tiny") == before


def test_a_cache_that_is_not_there_costs_one_line(finished: Path) -> None:
    before = files(finished / "tiny")
    environment = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "x"}
    secrets = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "a-secret"}
    cache = ("--cache", "s3://bucket/x")
    done = run_edgekit("run", str(TINY), "--out", str(finished), *cache, **environment, **secrets)
    assert done.returncode == 0, done.stderr
    output = [line for line in (done.stdout + done.stderr).splitlines() if "bucket" in line]
    assert len(output) == 1
    assert output[0].endswith("connection refused; the run goes on without this cache")
    assert "a-secret" not in done.stdout + done.stderr
    assert files(finished / "tiny") == before


def test_a_page_that_was_harmed_in_the_cache_is_drawn(finished: Path, tmp_path: Path) -> None:
    cache, lines = open_cache(str(tmp_path / "cache"), print), list[str]()
    cache.push_page(finished / "tiny")
    page = (finished / "tiny" / "report.html").read_bytes()
    (blob,) = (path for path in (tmp_path / "cache" / "cas").iterdir() if path.read_bytes() == page)
    blob.write_bytes(page.replace(b"</html>", b"</HTML>"))
    (finished / "tiny" / "report.html").unlink()
    open_cache(str(tmp_path / "cache"), lines.append).pull_page(finished / "tiny")
    assert not (finished / "tiny" / "report.html").exists()
    assert len(lines) == 1
    blob.write_bytes(page)
    cache.pull_page(finished / "tiny")
    assert (finished / "tiny" / "report.html").read_bytes() == page


def test_a_bad_url_is_reported_before_anything_runs(tmp_path: Path) -> None:
    done = run_edgekit("run", str(TINY), "--out", str(tmp_path), "--cache", "ftp://somewhere/x")
    assert done.returncode == 2
    assert done.stderr.startswith("edgekit: cache 'ftp://somewhere/x': write s3://BUCKET/PREFIX")
    assert list(tmp_path.iterdir()) == []
