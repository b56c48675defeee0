"""The user's cache folder, and the `__main__.py` of edgerun.pyz, in which `pyz.py` fills in DIGEST.

Python does not store compiled code for modules that it imports from a zip file, so a tenth of every start would be
spent on compiling. The first start therefore copies the sources into the cache folder, where Python stores compiled
code. The copy is used only if no other user could have written to it.
"""

import atexit
import os
import stat
import sys

DIGEST = ""


def cache_folder() -> str:
    """Return `$XDG_CACHE_HOME/edgerun`, by default below ~/.cache, or "" if the user has no such folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "edgerun") if os.path.isabs(cache) else ""


def is_private(folder: str) -> bool:
    """Whether only this user can write to a folder and to the two above it.

    The folder must belong to this user; the two above it may belong to root.
    """
    if sys.platform == "win32":  # by default, other users cannot write below a user's profile
        home = os.path.normcase(os.path.abspath(os.path.expanduser("~")))
        return os.path.isdir(folder) and os.path.normcase(os.path.abspath(folder)).startswith(home + os.sep)
    owners = {os.getuid()}
    for level in range(3):
        try:
            status = os.lstat(folder) if level < 2 else os.stat(folder)
        except OSError:
            return False
        is_writable_by_others = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners or is_writable_by_others:
            return False
        owners.add(0)
        folder = os.path.dirname(folder)
    return True


def unpacked_folder(archive: str) -> str:
    """Return the folder that holds an unpacked copy of this runner, or the archive itself if it cannot be unpacked."""
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
    """Unpack the archive into a folder, which gets its name only once it is complete."""
    import tempfile
    import zipfile

    cache = os.path.dirname(folder)
    os.makedirs(os.path.dirname(cache), exist_ok=True)
    if not os.path.isdir(cache):
        os.mkdir(cache, 0o700)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        complete = os.path.join(temporary, "complete")
        os.mkdir(complete, 0o700)
        with zipfile.ZipFile(archive) as source:
            source.extractall(complete, [name for name in source.namelist() if name.startswith("edgekit/")])
        os.rename(complete, folder)


def exit_process(code: int) -> None:
    """End the process, running exit handlers but not tearing down NumPy and the interpreter, which would take 15 ms.

    Under a debugger or profiler, or if a stream cannot be flushed, the process exits in the ordinary way.
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
    if sys.version_info < (3, 9):  # noqa: UP036  (older Pythons get this message)
        sys.exit("edgerun: Python {}.{} is too old; use 3.9 or newer".format(*sys.version_info))
    try:
        sys.path[0] = unpacked_folder(sys.path[0])
        from edgekit.runner.cli import main

        code = main()
    except KeyboardInterrupt:
        code = 130
    exit_process(code)
