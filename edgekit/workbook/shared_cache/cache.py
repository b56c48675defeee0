"""Pull a finished stage into a run's folder, and push one from it; nothing that is in the cache is ever overwritten."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from edgekit.core import artifacts
from edgekit.core.artifacts import RECORD, Artifact
from edgekit.core.config import STAGES, shortened_repr
from edgekit.core.errors import ConfigError, EdgekitError, TrustError
from edgekit.core.hashing import sha256_file
from edgekit.core.progress import write_to_stderr
from edgekit.core.run_folder import failed_notebook, notebook_name, stage_folder, working_folder, working_notebook
from edgekit.report import html
from edgekit.runner.files import make_folder, move_durably, remove_quietly, temporary_path
from edgekit.training import resume
from edgekit.workbook import state
from edgekit.workbook.plan import workbook_folder
from edgekit.workbook.shared_cache import entry, transfer
from edgekit.workbook.shared_cache import entry as entries
from edgekit.workbook.shared_cache.entry import Entry, NotebookEntry, PageEntry, Scope, page_path
from edgekit.workbook.shared_cache.stores import FolderStore, Store, StoreError


def take_page(store: Store, folder: Path) -> None:
    """Put the page of the run in `folder` in its place, if the store has it; StoreError where that is damaged."""
    key = html.sources_digest(folder)
    path = page_path(key)
    data = transfer.read_small(store, path)
    if data is None:
        return
    found = entries.parse_page(data, path)
    wanted = _names(folder)
    if found.key != key or set(found.files) != set(wanted):
        raise StoreError("damaged", f"{path} is that of another page")
    fetched = {name: temporary_path(file) for name, file in wanted.items()}
    try:
        transfer.fetch_all(store, {fetched[name]: (sha, size) for name, (sha, size) in found.files.items()})
        for name, file in wanted.items():  # the page itself comes last, for it says that all is there
            move_durably(fetched[name], file)
    finally:
        for left in fetched.values():
            remove_quietly(left)


def give_page(store: Store, folder: Path) -> None:
    """Put the drawn page of the run in `folder` into the store, unless it is there."""
    path = page_path(html.sources_digest(folder))
    if transfer.read_small(store, path) is not None:
        return
    files = {name: (file, sha256_file(file)) for name, file in _names(folder).items()}
    transfer.give_all(store, {sha: file for file, sha in files.values()})
    named = {name: (sha, file.stat().st_size) for name, (file, sha) in files.items()}
    transfer.create_small(store, path, entries.dump(PageEntry(html.sources_digest(folder), named)))


def _names(folder: Path) -> dict[str, Path]:
    """The files of the page, by their names below the run's folder."""
    make_folder(folder / html.NOTEBOOK_FOLDER)
    return {path.relative_to(folder).as_posix(): path for path in html.page_files(folder)}


Say = Callable[[str], None]
OBJECT_STORES = ("s3", "gs", "az")


def open_cache(url: str, say: Say | None = None) -> SharedCache:
    """The cache at a URL: s3://, gs://, az://, file:// or the path of a folder. Nothing is asked of it yet.

    `say` is called with the line about each fault; by default it goes to stderr. ConfigError for another URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "file", url
    if not rest or scheme not in ("file", *OBJECT_STORES):
        raise ConfigError(
            f"cache {shortened_repr(_without_secrets(url))}: write s3://BUCKET/PREFIX, gs://…, az://… or "
            "a folder's path"
        )
    if scheme == "file":
        return SharedCache(FolderStore(Path(rest).expanduser().absolute(), url), say or write_to_stderr)
    if _without_secrets(url) != url:
        raise ConfigError(
            f"cache {_without_secrets(url)}: a URL holds no credentials; they come from the environment alone"
        )
    from edgekit.workbook.shared_cache.stores import ObjectStore

    return SharedCache(ObjectStore(url), say or write_to_stderr)


class SharedCache:
    """A store of finished stages. A fault of the store is said in one line and never raised; see `pull` and `push`.

    After a fault that another attempt would meet too, the store is left alone: `readable` and `writable` say so.
    """

    def __init__(self, store: Store, say: Say) -> None:
        self.store, self._say = store, say
        self.url = store.url
        self.readable = self.writable = True
        self.taken: list[str] = []
        self.given: list[str] = []

    def pull(self, key: str, folder: Path, stage: str) -> bool:
        """Put the sealed artifact of `key` in its place in a run's folder, with its executed notebook if it is there.

        Every byte is hashed. False where there is none for a machine of this class, or none that is whole: the place
        is as it was then. The caller holds the run's lock.
        """
        working = working_folder(folder, stage)
        try:
            for scope in entry.scopes(stage) if self.readable else ():
                if found := self._entry(key, stage, scope):
                    self._restore(found, folder, working)
                    self._restore_notebook(found, folder, scope)
                    self.taken.append(stage)
                    return True
        except StoreError as error:
            self._failed(f"{stage} is not taken from it", error)
        except (OSError, EdgekitError) as error:
            self._say(f"cache {self.url}: {stage} is not taken from it: {error}")
        shutil.rmtree(working, ignore_errors=True)
        return False

    def push(self, artifact: Artifact, folder: Path) -> None:
        """Put a sealed artifact of a run's folder into the cache, with its executed notebook if that has a receipt.

        What is there stays. TrustError where the same key is there with another digest, although no latency decided
        about it: an alarm, for the same inputs gave another result.
        """
        if not self.writable:
            return
        scope = entry.scope_of(artifact)
        try:
            self._give(artifact, scope)
            self._give_notebook(artifact, folder, scope)
        except StoreError as error:
            self._failed(f"{artifact.stage} is not shared through it", error)
        except OSError as error:
            self._say(f"cache {self.url}: {artifact.stage} is not shared through it: {error}")

    def pull_page(self, folder: Path) -> None:
        """Put the page of the run in `folder` in its place, where one was drawn from the same sources."""
        try:
            if self.readable and not html.is_page_current(folder):
                take_page(self.store, folder)
        except StoreError as error:
            self._failed(f"{html.PAGE} is not taken from it", error)
        except (OSError, ValueError, KeyError) as error:
            self._say(f"cache {self.url}: {html.PAGE} is not taken from it: {error}")

    def push_page(self, folder: Path) -> None:
        """Put the page of the run in `folder` into the cache, if it is drawn."""
        try:
            if self.writable and html.is_page_current(folder):
                give_page(self.store, folder)
        except StoreError as error:
            self._failed(f"{html.PAGE} is not shared through it", error)
        except OSError as error:
            self._say(f"cache {self.url}: {html.PAGE} is not shared through it: {error}")

    def _entry(self, key: str, stage: str, scope: Scope) -> Entry | None:
        path = entries.path_of(key, scope)
        data = transfer.read_small(self.store, path)
        if data is None:
            return None
        found = entries.parse(data, path)
        if (found.key, found.stage) != (key, stage):
            raise StoreError("damaged", f"{path} is the entry of another key")
        return found

    def _restore(self, found: Entry, folder: Path, working: Path) -> None:
        artifacts.begin(working)
        transfer.fetch_all(self.store, {working / RECORD: (found.record, found.sizes_bytes.get(RECORD, 0))})
        record = artifacts.load(working)
        if (record.key, record.stage, record.digest) != (found.key, found.stage, found.digest):
            raise StoreError("damaged", f"the record of {found.stage} is that of another artifact")
        if set(record.files) != set(found.sizes_bytes) - {RECORD} or not all(map(_is_inside, record.files)):
            raise StoreError("damaged", f"the entry of {found.stage} names other files than its record")
        wanted = {working / name: (sha, found.sizes_bytes[name]) for name, sha in record.files.items()}
        transfer.fetch_all(self.store, wanted)
        artifacts.sync_files(working, [*record.files, RECORD])
        artifacts.publish(working, stage_folder(folder, found.stage))
        resume.remove(folder, found.stage)

    def _restore_notebook(self, found: Entry, folder: Path, scope: Scope) -> None:
        """Nothing happens where there is none; the stage's notebook then runs for its checks."""
        if found.stage not in STAGES:
            return
        path = entries.notebook_path(found.key, scope, _source(found.stage))
        try:
            if (data := transfer.read_small(self.store, path)) is None:
                return
            noted = entries.parse_notebook(data, path)
            names = (notebook_name(found.stage), failed_notebook(folder, found.stage).name)
            if (noted.receipt.key, noted.receipt.digest) != (
                found.key,
                found.digest,
            ) or noted.receipt.executed not in names:
                raise StoreError("damaged", f"{path} is that of another artifact")
            fetched = working_notebook(folder, found.stage)
            try:
                transfer.fetch_all(self.store, {fetched: (noted.receipt.executed_sha256, noted.size_bytes)})
                state.restore_receipt(fetched.parent, found.stage, noted.receipt, fetched)
            finally:
                remove_quietly(fetched)
        except StoreError as error:
            self._failed(f"the executed notebook of {found.stage} is not taken from it", error)

    def _give(self, artifact: Artifact, scope: Scope) -> None:
        own = Entry.of(artifact)
        there = self._entry(artifact.key, artifact.stage, scope)
        if there is None:
            artifacts.verify(artifact)
            files = {sha: artifact.path / name for name, sha in artifact.files.items()}
            transfer.give_all(self.store, {**files, own.record: artifact.path / RECORD})
            if transfer.create_small(self.store, entries.path_of(artifact.key, scope), entries.dump(own)):
                self.given.append(artifact.stage)
            there = self._entry(artifact.key, artifact.stage, scope)  # another may have been faster, or overwritten it
        if there is not None and there.digest != own.digest:
            self._alarm(own, there)

    def _alarm(self, own: Entry, there: Entry) -> None:
        if own.measured != there.measured:
            self._say(
                f"cache {self.url}: {own.stage} of {there.made_by} rests on other latencies; this run keeps its own"
            )
            return
        raise TrustError(
            f"{own.stage}: not reproducible: the key {own.key[:12]} gave digest {own.digest[:12]} on {own.made_by} and "
            f"{there.digest[:12]} on {there.made_by}, which is in cache {self.url}. Find out why before you "
            "use either; a run without --cache continues with its own"
        )

    def _give_notebook(self, artifact: Artifact, folder: Path, scope: Scope) -> None:
        if artifact.stage not in STAGES:
            return
        source, notebooks = _source(artifact.stage), folder / "notebooks"
        receipt = state.find_receipt(notebooks, artifact, source)
        if receipt is None:
            return
        path = entries.notebook_path(artifact.key, scope, source)
        if transfer.read_small(self.store, path) is not None:
            return
        executed = notebooks / receipt.executed
        transfer.give_all(self.store, {receipt.executed_sha256: executed})
        noted = NotebookEntry(artifact.key, receipt, executed.stat().st_size)
        transfer.create_small(self.store, path, entries.dump(noted))

    def _failed(self, what: str, error: StoreError) -> None:
        """Say it, and leave the store alone where another attempt would fail as well."""
        self._say(f"cache {self.url}: {what}: {error}{_CONSEQUENCES.get(error.kind, '')}")
        if error.kind in ("full", "read-only", "unreachable", "refused"):
            self.writable = False
        if error.kind in ("unreachable", "refused"):
            self.readable = False


_CONSEQUENCES = {
    "unreachable": "; the run goes on without this cache",
    "refused": "; the run goes on without this cache",
    "full": "; the run goes on and puts nothing into it",
    "read-only": "; the run goes on and puts nothing into it",
    "damaged": "; `edgekit cache check` lists all damage",
}


def _source(stage: str) -> Path:
    return workbook_folder("notebooks") / notebook_name(stage)


def _is_inside(name: str) -> bool:
    """Whether a member's name stays below its folder, and is spelled in one way only."""
    parts = PurePosixPath(name).parts
    return (
        bool(parts) and ".." not in parts and not name.startswith("/") and "/".join(parts) == name and "\\" not in name
    )


def _without_secrets(url: str) -> str:
    """A URL without user, password and what follows a question mark."""
    return re.sub(r"[?#].*", "", re.sub(r"://[^/@]*@", "://", url))
