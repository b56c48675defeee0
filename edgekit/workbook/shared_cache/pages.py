"""The page of a run, which takes longer to draw than all stages to take: shared by the digest of its sources."""

from __future__ import annotations

from pathlib import Path

from edgekit.core.hashing import sha256_file
from edgekit.report import html
from edgekit.runner.files import discard, make_folder, move, temporary_file
from edgekit.workbook.shared_cache import entry as entries
from edgekit.workbook.shared_cache import transfer
from edgekit.workbook.shared_cache.entry import PageEntry, page_path
from edgekit.workbook.shared_cache.store import Store, StoreError


def take(store: Store, folder: Path) -> None:
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
    fetched = {name: temporary_file(file) for name, file in wanted.items()}
    try:
        transfer.fetch_all(store, {fetched[name]: (sha, size) for name, (sha, size) in found.files.items()})
        for name, file in wanted.items():  # the page itself comes last, for it says that all is there
            move(fetched[name], file)
    finally:
        for left in fetched.values():
            discard(left)


def give(store: Store, folder: Path) -> None:
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
    make_folder(folder / html.BESIDE)
    return {path.relative_to(folder).as_posix(): path for path in html.files(folder)}
