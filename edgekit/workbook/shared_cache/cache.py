"""Pull finished stages from a cache into a run's folder, and push them into the cache. It never overwrites anything."""

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


def pull_page(store: Store, folder: Path) -> None:
    """Download the page of the run in `folder`, if the store has it.

    Raises
    ------
    StoreError
        The page in the store is damaged.
    """
    key = html.sources_digest(folder)
    path = page_path(key)
    data = transfer.read_small(store, path)
    if data is None:
        return
    page = entries.parse_page(data, path)
    files = _page_files(folder)
    if page.key != key or set(page.files) != set(files):
        raise StoreError("damaged", f"{path} belongs to another page")
    downloads = {name: temporary_path(file) for name, file in files.items()}
    try:
        transfer.fetch_all(store, {downloads[name]: (sha, size) for name, (sha, size) in page.files.items()})
        for name, file in files.items():  # the page comes last, because it shows that all files are there
            move_durably(downloads[name], file)
    finally:
        for download in downloads.values():
            remove_quietly(download)


def push_page(store: Store, folder: Path) -> None:
    """Upload the page of the run in `folder`, unless the store has it."""
    path = page_path(html.sources_digest(folder))
    if transfer.read_small(store, path) is not None:
        return
    files = {name: (file, sha256_file(file)) for name, file in _page_files(folder).items()}
    transfer.upload_all(store, {sha: file for file, sha in files.values()})
    entry_files = {name: (sha, file.stat().st_size) for name, (file, sha) in files.items()}
    transfer.create_small(store, path, entries.dump(PageEntry(html.sources_digest(folder), entry_files)))


def _page_files(folder: Path) -> dict[str, Path]:
    """Return the files of the page by their paths relative to the run's folder."""
    make_folder(folder / html.NOTEBOOK_FOLDER)
    return {path.relative_to(folder).as_posix(): path for path in html.page_files(folder)}


Say = Callable[[str], None]
OBJECT_STORES = ("s3", "gs", "az")


def open_cache(url: str, say: Say | None = None) -> SharedCache:
    """Return the cache at a URL: s3://, gs://, az://, file:// or the path of a folder. This makes no connection yet.

    `say` is called with a line for each fault; the default writes to stderr.

    Raises
    ------
    ConfigError
        The URL is of another kind, or holds credentials.
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
    """A store of finished stages. A fault of the store is reported in one line and never raised.

    After a fault that would occur again, `readable` or `writable` becomes False, and the store is no longer read from
    or written to.
    """

    def __init__(self, store: Store, say: Say) -> None:
        self.store, self._say = store, say
        self.url = store.url
        self.readable = self.writable = True
        self.pulled: list[str] = []
        self.pushed: list[str] = []

    def pull(self, key: str, folder: Path, stage: str) -> bool:
        """Put the sealed artifact of `key` into a run's folder.

        The executed notebook is pulled as well, if the cache has it. All bytes are checked against their digests.
        Returns False and changes nothing if the cache has no artifact for machines of this class, or only a damaged
        one. The caller holds the run's lock.
        """
        working = working_folder(folder, stage)
        try:
            for scope in entry.scopes(stage) if self.readable else ():
                if cached := self._read_entry(key, stage, scope):
                    self._restore(cached, folder, working)
                    self._restore_notebook(cached, folder, scope)
                    self.pulled.append(stage)
                    return True
        except StoreError as error:
            self._report_failure(f"{stage} is not read from it", error)
        except (OSError, EdgekitError) as error:
            self._say(f"cache {self.url}: {stage} is not read from it: {error}")
        shutil.rmtree(working, ignore_errors=True)
        return False

    def push(self, artifact: Artifact, folder: Path) -> None:
        """Put a sealed artifact of a run's folder into the cache, with its executed notebook if that has a receipt.

        Objects that the cache already has are not replaced.

        Raises
        ------
        TrustError
            The cache has a different result under the same key, and the difference is not explained by latencies. So
            the stage is not reproducible.
        """
        if not self.writable:
            return
        scope = entry.scope_of(artifact)
        try:
            self._push_artifact(artifact, scope)
            self._push_notebook(artifact, folder, scope)
        except StoreError as error:
            self._report_failure(f"{artifact.stage} is not written to it", error)
        except OSError as error:
            self._say(f"cache {self.url}: {artifact.stage} is not written to it: {error}")

    def pull_page(self, folder: Path) -> None:
        """Pull the page of the run in `folder`, if another machine drew it from the same sources."""
        try:
            if self.readable and not html.is_page_current(folder):
                pull_page(self.store, folder)
        except StoreError as error:
            self._report_failure(f"{html.PAGE} is not read from it", error)
        except (OSError, ValueError, KeyError) as error:
            self._say(f"cache {self.url}: {html.PAGE} is not read from it: {error}")

    def push_page(self, folder: Path) -> None:
        """Put the page of the run in `folder` into the cache, if it is drawn."""
        try:
            if self.writable and html.is_page_current(folder):
                push_page(self.store, folder)
        except StoreError as error:
            self._report_failure(f"{html.PAGE} is not written to it", error)
        except OSError as error:
            self._say(f"cache {self.url}: {html.PAGE} is not written to it: {error}")

    def _read_entry(self, key: str, stage: str, scope: Scope) -> Entry | None:
        path = entries.entry_path(key, scope)
        data = transfer.read_small(self.store, path)
        if data is None:
            return None
        cached = entries.parse(data, path)
        if (cached.key, cached.stage) != (key, stage):
            raise StoreError("damaged", f"{path} belongs to another key")
        return cached

    def _restore(self, cached: Entry, folder: Path, working: Path) -> None:
        artifacts.begin(working)
        transfer.fetch_all(self.store, {working / RECORD: (cached.record, cached.sizes_bytes.get(RECORD, 0))})
        record = artifacts.load(working)
        if (record.key, record.stage, record.digest) != (cached.key, cached.stage, cached.digest):
            raise StoreError("damaged", f"the record of {cached.stage} belongs to another artifact")
        if set(record.files) != set(cached.sizes_bytes) - {RECORD} or not all(map(_is_inside, record.files)):
            raise StoreError("damaged", f"the entry of {cached.stage} lists other files than its record")
        downloads = {working / name: (sha, cached.sizes_bytes[name]) for name, sha in record.files.items()}
        transfer.fetch_all(self.store, downloads)
        artifacts.sync_files(working, [*record.files, RECORD])
        artifacts.publish(working, stage_folder(folder, cached.stage))
        resume.remove(folder, cached.stage)

    def _restore_notebook(self, cached: Entry, folder: Path, scope: Scope) -> None:
        """Restore the executed notebook. If there is none, the stage's notebook runs again for its checks."""
        if cached.stage not in STAGES:
            return
        path = entries.notebook_path(cached.key, scope, _source(cached.stage))
        try:
            if (data := transfer.read_small(self.store, path)) is None:
                return
            notebook = entries.parse_notebook(data, path)
            names = (notebook_name(cached.stage), failed_notebook(folder, cached.stage).name)
            if (notebook.receipt.key, notebook.receipt.digest) != (
                cached.key,
                cached.digest,
            ) or notebook.receipt.executed not in names:
                raise StoreError("damaged", f"{path} belongs to another artifact")
            executed = working_notebook(folder, cached.stage)
            try:
                transfer.fetch_all(self.store, {executed: (notebook.receipt.executed_sha256, notebook.size_bytes)})
                state.restore_receipt(executed.parent, cached.stage, notebook.receipt, executed)
            finally:
                remove_quietly(executed)
        except StoreError as error:
            self._report_failure(f"the executed notebook of {cached.stage} is not read from it", error)

    def _push_artifact(self, artifact: Artifact, scope: Scope) -> None:
        new = Entry.from_artifact(artifact)
        existing = self._read_entry(artifact.key, artifact.stage, scope)
        if existing is None:
            artifacts.verify(artifact)
            files = {sha: artifact.path / name for name, sha in artifact.files.items()}
            transfer.upload_all(self.store, {**files, new.record: artifact.path / RECORD})
            if transfer.create_small(self.store, entries.entry_path(artifact.key, scope), entries.dump(new)):
                self.pushed.append(artifact.stage)
            existing = self._read_entry(artifact.key, artifact.stage, scope)  # another machine may have been faster
        if existing is not None and existing.digest != new.digest:
            self._report_conflict(new, existing)

    def _report_conflict(self, new: Entry, existing: Entry) -> None:
        if new.measured != existing.measured:
            self._say(
                f"cache {self.url}: {new.stage} from {existing.made_by} was decided by other latencies; this run "
                f"keeps its own result"
            )
            return
        raise TrustError(
            f"{new.stage}: not reproducible: the key {new.key[:12]} gave digest {new.digest[:12]} on {new.made_by} and "
            f"{existing.digest[:12]} on {existing.made_by}, which is in cache {self.url}. Find out why before you "
            f"use either; a run without --cache continues with its own result"
        )

    def _push_notebook(self, artifact: Artifact, folder: Path, scope: Scope) -> None:
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
        transfer.upload_all(self.store, {receipt.executed_sha256: executed})
        notebook = NotebookEntry(artifact.key, receipt, executed.stat().st_size)
        transfer.create_small(self.store, path, entries.dump(notebook))

    def _report_failure(self, consequence: str, error: StoreError) -> None:
        """Report the fault, and stop using the store if another attempt would fail as well."""
        self._say(f"cache {self.url}: {consequence}: {error}{_CONSEQUENCES.get(error.kind, '')}")
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
    """Whether a member's name is a path in canonical form that does not lead out of its folder."""
    parts = PurePosixPath(name).parts
    return (
        bool(parts) and ".." not in parts and not name.startswith("/") and "/".join(parts) == name and "\\" not in name
    )


def _without_secrets(url: str) -> str:
    """Return a URL without user, password, query and fragment."""
    return re.sub(r"[?#].*", "", re.sub(r"://[^/@]*@", "://", url))
