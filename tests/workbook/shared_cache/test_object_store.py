"""A real S3 server through a line that is cut, slow, silent or lying: a stage is whole, or it is not taken."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgekit.core import artifacts
from edgekit.core.artifacts import Artifact
from edgekit.core.errors import ConfigError, TrustError
from edgekit.workbook.shared_cache import open_cache, transfer
from tests.workbook.shared_cache import proxy, s3
from tests.workbook.shared_cache.stages import opened, receive, seal

URL = "s3://bucket/some/prefix"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3.serving(tmp_path_factory.mktemp("moto") / "log") as port:
        yield port


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def set_port(port: int) -> None:
        for name, value in s3.environment(port).items():
            monkeypatch.setenv(name, value)

    return set_port


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for answers end after a second or two."""
    monkeypatch.setattr(transfer, "ANSWER_LIMIT_S", 2.0)
    monkeypatch.setattr(transfer, "ANSWER_LIMIT_S", 2.0)


@pytest.fixture
def artifact(tmp_path: Path, request: pytest.FixtureRequest) -> Artifact:
    """A stage whose key no other test has."""
    artifact = seal(tmp_path / "a", seed=abs(hash(request.node.name)) % 2**31, weights=b"weights" * 30_000)
    receive(tmp_path / "a", artifact)
    return artifact


@pytest.mark.processes
def test_a_stage_comes_out_of_the_store_as_it_went_in(
    server: int, connect: Callable[[int], None], artifact: Artifact, tmp_path: Path
) -> None:
    connect(server)
    first, output = opened(URL)
    first.push(artifact, tmp_path / "a")
    cache, lines = opened(URL)
    assert cache.pull(artifact.key, tmp_path / "b", "prune")
    assert artifacts.is_intact(tmp_path / "b" / "prune")
    assert (tmp_path / "b" / "notebooks" / "03_prune.ipynb").read_text() == "executed"
    assert not opened("s3://bucket/other")[0].pull(artifact.key, tmp_path / "c", "prune")
    assert output == lines == []


@pytest.mark.processes
def test_another_digest_under_a_key_is_an_alarm(
    server: int, connect: Callable[[int], None], artifact: Artifact, tmp_path: Path
) -> None:
    connect(server)
    opened(URL)[0].push(artifact, tmp_path / "a")
    other = seal(tmp_path / "o", seed=artifact.config["seed"], weights=b"other")
    with pytest.raises(TrustError, match=r"not reproducible.*cache s3://bucket"):
        opened(URL)[0].push(other, tmp_path / "o")
    assert opened(URL)[0].pull(artifact.key, tmp_path / "b", "prune")
    assert artifacts.load(tmp_path / "b" / "prune").digest == artifact.digest


@pytest.mark.processes
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (proxy.cut_after(9_000), "cache s3://"),
        (proxy.silent, "no answer within 2 s; the run goes on without this cache"),
        (proxy.trickle, "the run goes on without this cache"),
        (proxy.replace(b"weightsweights", b"WEIGHTSWEIGHTS"), "does not match its digest"),
        (
            proxy.replace(b'"stage":"prune"', b'"stage":"bench"'),
            "not an entry as edgekit writes it (its own digest)",
        ),
        (proxy.answer("403 Forbidden"), "it refused access; give credentials in the environment"),
        (proxy.answer("503 Slow Down"), "it answered 503"),
    ],
    ids=["cut", "silent", "trickle", "lies", "lies-in-the-entry", "refuses", "overloaded"],
)
@pytest.mark.usefixtures("impatient")
def test_a_bad_line_costs_one_line_and_nothing_else(
    server: int,
    connect: Callable[[int], None],
    artifact: Artifact,
    tmp_path: Path,
    fault: proxy.Fault,
    words: str,
) -> None:
    connect(server)
    opened(URL)[0].push(artifact, tmp_path / "a")
    with proxy.before(server, fault) as port:
        connect(port)
        cache, lines = opened(URL)
        assert not cache.pull(artifact.key, tmp_path / "b", "prune")
        assert len(lines) == 1
        assert words in lines[0]
        assert s3.SECRET not in lines[0]
        other = seal(tmp_path / "o", seed=artifact.config["seed"] + 1)
        cache.push(other, tmp_path / "o")
        assert len(lines) <= 2
    assert not (tmp_path / "b" / "prune").exists()
    assert not list((tmp_path / "b").glob(".*"))
    assert artifacts.is_intact(other.path)


@pytest.mark.processes
def test_a_store_that_is_not_there_is_asked_once(
    connect: Callable[[int], None], artifact: Artifact, tmp_path: Path
) -> None:
    connect(9)
    cache, lines = opened(URL)
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    cache.push(artifact, tmp_path / "a")
    assert lines == [f"cache {URL}: prune is not read from it: connection refused; the run goes on without this cache"]


@pytest.mark.processes
def test_a_missing_bucket_is_reported(
    server: int, connect: Callable[[int], None], artifact: Artifact, tmp_path: Path
) -> None:
    connect(server)
    cache, lines = opened("s3://nobodys/prefix")
    cache.push(artifact, tmp_path / "a")
    assert len(lines) == 1
    assert "there is no such bucket" in lines[0]


def test_a_store_without_encryption_is_refused_unless_it_is_asked_for(
    connect: Callable[[int], None], artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(9)
    monkeypatch.delenv("AWS_ALLOW_HTTP")
    cache, lines = opened(URL)
    assert not cache.pull(artifact.key, tmp_path / "b", "prune")
    assert "AWS_ALLOW_HTTP is not set" in lines[0]


def test_a_store_of_each_kind_opens_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        open_cache("az://container/prefix")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    for url in ("s3://bucket", "gs://bucket/prefix", "az://container/prefix"):
        assert open_cache(url).url == url


def test_without_the_library_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(ConfigError, match=r"^cache s3://bucket: needs obstore, .* pip install obstore$"):
        open_cache("s3://bucket")
