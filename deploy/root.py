"""Fills the folder of an image: the runner, one interpreter, the server's packages and the bundles, and nothing else.

    python -m deploy.root FOLDER --interpreter NAME BUNDLE…

The Dockerfile calls this too, so what is measured without a container engine is what an image holds. Wheels come from
`deploy/requirements`, which names exact versions and digests. Sizes are printed in MB of 10⁶ bytes.
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
"""Interpreter → the targets whose bundles it runs, as the runner's backends say; to ask them would need numpy."""
ALWAYS = ("numpy", "serve")
EXTRA = ("pillow", "tokenizers")
RUNNER = "edgerun.pyz"
CHECK = Path(__file__).parent / "healthcheck.py"


def main(arguments: Sequence[str] | None = None) -> None:
    """SystemExit with a message for a bundle, a folder or a package that will not do."""
    parser = argparse.ArgumentParser("python -m deploy.root", description="Fill the folder of an image.")
    parser.add_argument("folder", type=Path, help="where to; must not be there yet")
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
        _fail(f"{options.folder} is there already; name a new folder, or remove it")
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


def _bundles(given: Sequence[Path], interpreter: str) -> Iterator[Path]:
    """Each bundle that is named; of a folder those that the interpreter runs, by name."""
    for path in given:
        if path.is_dir():
            there = sorted(path.glob("*.edge.zip"))
            found = [bundle for bundle in there if _target(bundle) in ("", *TARGETS[interpreter])]
            if not found:
                others = f"of {len(there)} .edge.zip none is for {' or '.join(TARGETS[interpreter])}"
                _fail(f"{path}: {others if there else 'it holds no .edge.zip'}; name one that {interpreter} runs")
            yield from found
        elif path.is_file():
            yield path
        else:
            _fail(f"{path} is not there; name a bundle, or a folder that holds some")


def _target(bundle: Path) -> str:
    """What the manifest says; nothing where it cannot be read, which the selftest puts better."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            return str(json.loads(archive.read("manifest.json"))["target"])
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError):
        return ""


def fill(folder: Path, parts: Sequence[str], bundles: Sequence[Path]) -> None:
    """Install, leave out what no start needs, compile, and ask every bundle its golden vectors."""
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
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH  # a layer may change the times of files
    if not compileall.compile_dir(packages, maxlevels=99, quiet=1, invalidation_mode=mode):
        _fail(f"{packages} holds Python that does not compile; the lines above say where")
    for path in (folder, *folder.rglob("*")):
        path.chmod((path.stat().st_mode | (0o555 if path.is_dir() else 0o444)) & ~0o022)
    for bundle in sorted((folder / "bundles").iterdir()):
        prove(folder, bundle)


def install(packages: Path, parts: Sequence[str]) -> None:
    """The wheels of these parts, by digest; `--no-deps`, for the files of requirements name all that is needed."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "install"]
    wheels = ["--target", str(packages), "--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-compile"]
    files = [word for part in parts for word in ("--requirement", str(REQUIREMENTS / f"{part}.txt"))]
    done = subprocess.run([*pip, *wheels, *files], check=False)
    if done.returncode:
        _fail(f"pip ended with code {done.returncode}; its message stands above")


def remove(packages: Path, patterns: Sequence[str]) -> None:
    """Files and folders that match; a pattern may match nothing, for wheels differ between processors."""
    for pattern in patterns:
        for path in sorted(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def prove(folder: Path, bundle: Path) -> None:
    """The golden vectors, with what the folder holds alone."""
    command = [sys.executable, "-S", "-B", str(folder / RUNNER), "selftest", str(bundle)]
    environment = {"PYTHONPATH": str((folder / "packages").resolve())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        _fail(f"{bundle.name} does not pass its selftest in {folder}: {done.stderr.strip() or done.stdout.strip()}")


def sizes(folder: Path) -> list[tuple[str, int]]:
    """(distribution or other part, bytes), largest first, then the sum."""
    packages = folder / "packages"
    owners = {entry: name for name, entries in _owned(packages) for entry in entries}
    found: dict[str, int] = {}
    for path in (path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder).parts
        part = owners[_entry(inside[1:])] if inside[0] == "packages" else inside[0]
        found[part] = found.get(part, 0) + path.stat().st_size
    rows = sorted(found.items(), key=lambda row: -row[1])
    return [*rows, ("in total", sum(found.values()))]


def _entry(inside: tuple[str, ...]) -> str:
    """The first part of a path below `packages`; compiled code of a module at the top stands with it."""
    return f"{inside[1].partition('.')[0]}.py" if inside[0] == "__pycache__" else inside[0]


def _owned(packages: Path) -> Iterator[tuple[str, set[str]]]:
    """Each distribution, and what it has put at the top of the folder."""
    for record in sorted(packages.glob("*.dist-info/RECORD")):
        name = record.parent.name.removesuffix(".dist-info").replace("-", " ")
        yield name, {line.partition("/")[0].partition(",")[0] for line in record.read_text().splitlines()}


if __name__ == "__main__":
    main()
