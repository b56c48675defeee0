"""Python's writes below one folder, counted and made to fail; and what of them would outlive a power cut.

SIGKILL loses nothing that was written: the page cache stays. A power cut loses whatever was not synced, and may lose
any suffix of the changes to a folder that were made since that folder was synced, each folder for itself (Pillai et
al., "All File Systems Are Not Created Equal", OSDI 2014). `Disk.image` builds such a state.
"""

from __future__ import annotations

import builtins
import io
import os
import random
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

REAL: dict[str, Callable[..., Any]] = {
    name: getattr(os, name)
    for name in ("open", "fsync", "replace", "rename", "mkdir", "unlink", "remove", "rmdir", "link", "symlink")
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
Listing = dict[str, int]


class Disk:
    """The operations below `root` since `install`; `before` is called with each one's number, name and path."""

    def __init__(self, root: Path, shadow: Path, before: Callable[[int, str, Path, Any], None]) -> None:
        """`shadow`: a folder on the same file system, where removed files are kept for `image`."""
        self.root, self.shadow, self.before = root.resolve(), shadow, before
        self.count = 0
        self._busy = False
        self._synced: dict[int, tuple[int, int]] = {}
        self._listings: dict[int, list[Listing]] = {}
        shadow.mkdir(parents=True, exist_ok=True)
        for folder, _, files in os.walk(self.root):
            self._know(Path(folder))
            for name in files:
                self._synced[os.lstat(Path(folder, name)).st_ino] = _state(Path(folder, name))

    def install(self) -> None:
        """Take the place of the functions that write."""
        for name in ("fsync", "replace", "rename", "mkdir", "unlink", "remove", "rmdir", "link", "symlink", "open"):
            setattr(os, name, getattr(self, f"_{name}"))
        builtins.open = io.open = self._builtin_open  # type: ignore[assignment]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is done meanwhile is the harness's own and does not count."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    def image(self, target: Path, chance: random.Random | None) -> None:
        """Build in `target` what a power cut now may leave; without `chance` everything that may be lost is."""
        with self.aside():
            self._image(target, chance)

    def _image(self, target: Path, chance: random.Random | None) -> None:
        places = {os.lstat(path).st_ino: path for path in self.shadow.iterdir()}
        for folder, names, files in os.walk(self.root):
            places.update({os.lstat(path).st_ino: path for path in (Path(folder, name) for name in [*names, *files])})
        if self.root.exists():
            self._build(os.lstat(self.root).st_ino, self.root, target, places, chance)

    def _build(
        self, number: int, now: Path | None, target: Path, places: dict[int, Path], chance: random.Random | None
    ) -> None:
        states = [*self._listings.get(number, [{}]), *([_listing(now)] if now and now.is_dir() else [])]
        target.mkdir()
        for name, inode in (chance.choice(states) if chance else states[0]).items():
            path = places.get(inode)
            if path and path.is_symlink():
                REAL["symlink"](os.readlink(path), target / name)
            elif inode in self._listings or (path and path.is_dir()):
                self._build(inode, path, target / name, places, chance)
            elif path is not None and (self._synced.get(inode) == _state(path) or (chance and chance.random() < 0.5)):
                shutil.copyfile(path, target / name)
            else:
                (target / name).touch()

    def _know(self, folder: Path, *, fresh: bool = False) -> None:
        number = os.lstat(folder).st_ino
        REAL["open"](folder, os.O_RDONLY)  # held, so that its inode number is not given to another
        self._listings[number] = [{} if fresh else _listing(folder)]

    def _changed(self, folder: Path) -> None:
        if folder.is_dir() and (states := self._listings.get(os.lstat(folder).st_ino)) is not None:
            states.append(_listing(folder))

    def _keep(self, path: Path) -> None:
        if path.is_symlink() or path.is_file():
            kept = self.shadow / str(os.lstat(path).st_ino)
            if not os.path.lexists(kept):
                REAL["link"](path, kept, follow_symlinks=False)

    def _inside(self, path: Any, folder: int | None = None) -> Path | None:
        if self._busy or isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if folder is not None and not os.path.isabs(text):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
        whole = Path(os.path.abspath(text))
        return whole if whole == self.root or self.root in whole.parents else None

    def _do(self, name: str, path: Path, act: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        """`half` does the operation by half, where it has halves."""
        self.count += 1
        self.before(self.count, name, path, half)
        return act()

    def _fsync(self, handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        path = self._inside(os.readlink(f"/proc/self/fd/{number}"))
        if path is None:
            return REAL["fsync"](number)
        self._do("fsync", path, lambda: None)  # no power goes in truth, and the real one takes its time
        found = os.fstat(number)
        if stat.S_ISDIR(found.st_mode):
            self._listings[found.st_ino] = [_listing(path)]
        else:
            self._synced[found.st_ino] = (found.st_size, found.st_mtime_ns)

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        final = self._inside(target)
        if final is None:
            return REAL["replace"](source, target, **more)

        def act() -> None:
            self._keep(final)
            REAL["replace"](source, target, **more)

        self._do("replace", final, act)
        self._changed(final.parent)

    _rename = _replace

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        folder = self._inside(path, dir_fd)
        if folder is None:
            return REAL["mkdir"](path, mode, dir_fd=dir_fd)
        self._do("mkdir", folder, lambda: REAL["mkdir"](path, mode, dir_fd=dir_fd))
        self._know(folder, fresh=True)
        self._changed(folder.parent)

    def _unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        file = self._inside(path, dir_fd)
        if file is None:
            return REAL["unlink"](path, dir_fd=dir_fd)

        def act() -> None:
            self._keep(file)
            REAL["unlink"](path, dir_fd=dir_fd)

        self._do("unlink", file, act)
        self._changed(file.parent)

    _remove = _unlink

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        folder = self._inside(path, dir_fd)
        if folder is None:
            return REAL["rmdir"](path, dir_fd=dir_fd)
        self._do("rmdir", folder, lambda: REAL["rmdir"](path, dir_fd=dir_fd))
        self._changed(folder.parent)

    def _symlink(self, source: Any, target: Any) -> None:
        self._name("symlink", source, target)

    def _link(self, source: Any, target: Any) -> None:
        self._name("link", source, target)

    def _name(self, how: str, source: Any, target: Any) -> None:
        path = self._inside(target)
        if path is None:
            return REAL[how](source, target)
        self._do(how, path, lambda: REAL[how](source, target))
        self._changed(path.parent)

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        file = self._inside(path, dir_fd)
        if file is None or not flags & WRITES:
            return REAL["open"](path, flags, mode, dir_fd=dir_fd)
        handle: int = self._do("open", file, lambda: REAL["open"](path, flags, mode, dir_fd=dir_fd))
        self._changed(file.parent)
        return handle

    def _builtin_open(self, file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
        path = None if mode.startswith("r") and "+" not in mode else self._inside(file)
        if path is None:
            return _open(file, mode, *args, **more)
        plain = mode.replace("b", "").replace("t", "")
        raw = self._do("open", path, lambda: _Counted(self, path, plain))
        self._changed(path.parent)
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        if "b" in mode:
            return buffered
        text = dict(zip(("buffering", "encoding", "errors", "newline"), args, strict=False)) | more
        return io.TextIOWrapper(buffered, text.get("encoding"), text.get("errors"), text.get("newline"))


_open = io.open


class _Counted(io.FileIO):
    """A file whose every write to the system counts."""

    def __init__(self, disk: Disk, path: Path, mode: str) -> None:
        super().__init__(path, mode)
        self._disk, self._path = disk, path

    def write(self, data: Any) -> int:
        if self._disk._inside(self._path) is None:
            return super().write(data)
        write = super().write

        def half() -> None:
            with _open(self._path, "ab") as stream:  # by its name: in a copy of the folder it is another file
                stream.write(bytes(data)[: len(data) // 2])

        return int(self._disk._do("write", self._path, lambda: write(data), half))


def _listing(folder: Path) -> Listing:
    return {entry.name: entry.inode() for entry in os.scandir(folder)}


def _state(path: Path) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_size, found.st_mtime_ns
