"""Fill the folder of a container image with the runner, one interpreter, the server's packages and the bundles.

    python -m deploy.root FOLDER --interpreter NAME BUNDLE…

The Dockerfile calls this module as well, so the sizes that it prints without a container engine are those of the image.
The files in `deploy/requirements` name the exact version and digest of every wheel. Sizes are in MB of 10⁶ bytes.
"""

from __future__ import annotations

import argparse
import compileall
import json
import py_compile
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from deploy.unneeded import EVERYWHERE, OF
from edgekit.device import pyz

REQUIREMENTS = Path(__file__).parent / "requirements"
TARGETS = {"ai-edge-litert": ("tflite",), "openvino": ("openvino", "onnx"), "onnxruntime": ("onnx",)}
"""Interpreter → the targets whose bundles it runs. The runner's backends know this too, but need NumPy."""
ALWAYS = ("numpy", "serve")
EXTRA = ("pillow", "tokenizers")
RUNNER = "edgerun.pyz"
CHECK = Path(__file__).parent / "healthcheck.py"


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, fill the folder and print its sizes; SystemExit with a message if that is not possible."""
    parser = argparse.ArgumentParser("python -m deploy.root", description="Fill the folder of an image.")
    parser.add_argument("folder", type=Path, help="the folder to fill; must not exist yet")
    parser.add_argument("bundles", type=Path, nargs="+", metavar="BUNDLE", help="a .edge.zip, or a folder of them")
    parser.add_argument("--interpreter", required=True, choices=list(TARGETS))
    parser.add_argument(
        "--with",
        dest="extra",
        action="append",
        default=[],
        choices=EXTRA,
        help="pillow for pictures, tokenizers for texts",
    )
    options = parser.parse_args(arguments)
    if options.folder.exists():
        _fail(f"{options.folder} exists already; name a new folder, or remove it")
    bundles = list(_bundles(options.bundles, options.interpreter))
    try:
        fill(options.folder, [*ALWAYS, options.interpreter, *options.extra], bundles)
    except BaseException:
        shutil.rmtree(options.folder, ignore_errors=True)
        raise
    for name, size_bytes in sizes(options.folder):
        print(f"{size_bytes / 1e6:8.1f} MB  {name}")


def _fail(message: str) -> NoReturn:
    sys.exit(f"deploy.root: {message}")


def _bundles(paths: Sequence[Path], interpreter: str) -> Iterator[Path]:
    """Yield the named bundles, and from each named folder the bundles that the interpreter can run, sorted by name."""
    for path in paths:
        if path.is_dir():
            bundles = sorted(path.glob("*.edge.zip"))
            usable = [bundle for bundle in bundles if _target(bundle) in ("", *TARGETS[interpreter])]
            if not usable:
                problem = f"none of its {len(bundles)} .edge.zip files is for {' or '.join(TARGETS[interpreter])}"
                _fail(f"{path}: {problem if bundles else 'no .edge.zip in it'}; name a bundle that {interpreter} runs")
            yield from usable
        elif path.is_file():
            yield path
        else:
            _fail(f"{path} does not exist; name a bundle, or a folder with bundles")


def _target(bundle: Path) -> str:
    """Return the target in the manifest, or "" if it cannot be read: the self-test then gives the better message."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            return str(json.loads(archive.read("manifest.json"))["target"])
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        return ""


def fill(folder: Path, parts: Sequence[str], bundles: Sequence[Path]) -> None:
    """Install the parts, remove what the server does not need, compile the rest, and self-test every bundle."""
    packages = folder / "packages"
    install(packages, parts)
    for part in parts:
        remove(packages, OF.get(part, ()))
    remove(packages, EVERYWHERE)
    pyz.build(folder / RUNNER)
    shutil.copy(CHECK, folder)
    (folder / "bundles").mkdir()
    for bundle in bundles:
        shutil.copy(bundle, folder / "bundles")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # because layers of an image may change modification times
    if not compileall.compile_dir(packages, maxlevels=99, quiet=1, invalidation_mode=mode):
        _fail(f"some Python files in {packages} do not compile; the lines above name them")
    for path in (folder, *folder.rglob("*")):
        path.chmod((path.stat().st_mode | (0o555 if path.is_dir() else 0o444)) & ~0o022)
    for bundle in sorted((folder / "bundles").iterdir()):
        selftest(folder, bundle)


def install(packages: Path, parts: Sequence[str]) -> None:
    """Install the wheels of these parts, checking their digests.

    `--no-deps` is safe because the requirements files name every package that is needed.
    """
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "install"]
    wheels = ["--target", str(packages), "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"]
    files = [word for part in parts for word in ("--requirement", str(REQUIREMENTS / f"{part}.txt"))]
    done = subprocess.run([*pip, *wheels, *files], check=False)
    if done.returncode:
        _fail(f"pip ended with code {done.returncode}; see its message above")


def remove(packages: Path, patterns: Sequence[str]) -> None:
    """Remove matching files and folders. A pattern may match nothing, because wheels differ between processors."""
    for pattern in patterns:
        for path in sorted(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def selftest(folder: Path, bundle: Path) -> None:
    """Run the self-test of a bundle with nothing but the contents of the folder."""
    command = [sys.executable, "-S", "-B", str(folder / RUNNER), "selftest", str(bundle)]
    environment = {"PYTHONPATH": str((folder / "packages").resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        _fail(f"{bundle.name} does not pass its selftest in {folder}: {done.stderr.strip() or done.stdout.strip()}")


def sizes(folder: Path) -> list[tuple[str, int]]:
    """Return (distribution or other part, bytes) of all parts, the largest first, and their sum at the end."""
    packages = folder / "packages"
    owners = {entry: name for name, entries in _owned(packages) for entry in entries}
    bytes_of: dict[str, int] = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder).parts
        part = owners[_entry(inside[1:])] if inside[0] == "packages" else inside[0]
        bytes_of[part] = bytes_of.get(part, 0) + path.stat().st_size
    rows = sorted(bytes_of.items(), key=lambda row: -row[1])
    return [*rows, ("in total", sum(bytes_of.values()))]


def _entry(inside: tuple[str, ...]) -> str:
    """Return the first part of a path below `packages`; for the compiled code of a top-level module, that module."""
    return f"{inside[1].partition('.')[0]}.py" if inside[0] == "__pycache__" else inside[0]


def _owned(packages: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each distribution with the entries that it has in the top level of the folder."""
    for record in sorted(packages.glob("*.dist-info/RECORD")):
        name = record.parent.name.removesuffix(".dist-info").replace("-", " ")
        yield name, {line.partition("/")[0].partition(",")[0] for line in record.read_text().splitlines()}


if __name__ == "__main__":
    main()
