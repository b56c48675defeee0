"""The user's cache folder, and the `__main__.py` of edgerun.pyz; `pyz.py` fills in DIGEST there.

Python keeps no compiled code of what it imports from a zip file, so a tenth of every start would go to compiling. The
first start therefore puts a copy of the sources into the cache folder, where Python does keep it. What lies there is
trusted only while nobody else could have put it there.
"""

import atexit
import os
import stat
import sys

DIGEST = ""


def cache_folder() -> str:
    """`$XDG_CACHE_HOME/edgerun`, by default below ~/.cache; empty where there is no such place."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "edgerun") if os.path.isabs(cache) else ""


def is_private(folder: str) -> bool:
    """Whether a folder, and the two above it, belong to this user (those above may be root's) and only it can write."""
    if sys.platform == "win32":  # by default, nobody else can write below a user's profile
        home = os.path.normcase(os.path.abspath(os.path.expanduser("~")))
        return os.path.isdir(folder) and os.path.normcase(os.path.abspath(folder)).startswith(home + os.sep)
    owners = {os.getuid()}
    for level in range(3):
        try:
            found = os.lstat(folder) if level < 2 else os.stat(folder)
        except OSError:
            return False
        open_to_all = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners or open_to_all:
            return False
        owners.add(0)
        folder = os.path.dirname(folder)
    return True


def unpacked_folder(archive: str) -> str:
    """The folder with this very runner, made if need be; the archive itself where there can be none."""
    cache = cache_folder()
    if sys.dont_write_bytecode or not DIGEST or not cache:
        return archive
    folder = os.path.join(cache, "code-" + DIGEST)
    try:
        if not os.path.isdir(folder):
            unpack(archive, folder)
    except (OSError, ValueError):
        return archive
    return folder if is_private(folder) else archive


def unpack(archive: str, folder: str) -> None:
    """All or nothing: the folder gets its name when it is complete."""
    import tempfile
    import zipfile

    cache = os.path.dirname(folder)
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    if not os.path.isdir(cache):
        os.mkdir(cache, 0o700)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        whole = os.path.join(temporary, "whole")
        os.mkdir(whole, 0o700)
        with zipfile.ZipFile(archive) as source:
            source.extractall(whole, [name for name in source.namelist() if name.startswith("edgekit/")])
        os.rename(whole, folder)


def exit_process(code: int) -> None:
    """End the process, exit handlers included, without taking numpy and the interpreter apart: that takes 15 ms.

    A debugger or a profiler keeps the ordinary end, and so does a stream that cannot be flushed.
    """
    if not sys.gettrace() and not sys.getprofile():
        atexit._run_exitfuncs()
        try:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        except (OSError, ValueError):
            pass
    sys.exit(code)


if __name__ == "__main__":
    if sys.version_info < (3, 9):  # noqa: UP036  (the message for those who have it)
        sys.exit("edgerun: Python {}.{} is too old; use 3.9 or newer".format(*sys.version_info))
    try:
        sys.path[0] = unpacked_folder(sys.path[0])
        from edgekit.runner.cli import main

        code = main()
    except KeyboardInterrupt:
        code = 130
    exit_process(code)
