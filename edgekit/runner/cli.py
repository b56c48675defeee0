"""`edgerun.pyz`: a bundle on the device. Finds the command, hands it its options, turns errors into exit codes."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from edgekit import __version__
from edgekit.runner import extension
from edgekit.runner.errors import RunnerError, keep_exit_code_after_interrupt

INTERRUPTED, TERMINATED = 130, 143
BROKEN_PIPE = 141
RESOURCES = 7
COMMANDS = "edgekit.runner.commands"
CODES = (
    "exit codes: 0 done, 2 misspelt command, 4 bundle or input, 5 interpreter, selftest or doctor, 7 resources, 8 trust"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code; see `CODES`. SystemExit with code 2 for a misspelt command."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy would start threads that nothing here uses: 20 ms
    ensure_standard_streams()
    try:
        command, options = parse_command_line(list(sys.argv[1:] if arguments is None else arguments))
        command.run(options)
        sys.stdout.flush()
    except RunnerError as error:
        return _fail(str(error), error.exit_code)
    except ImportError as error:
        if "numpy" not in f"{error.name} {error}":
            raise
        return _fail(f"numpy cannot be imported ({_first_line(error)}); `edgerun doctor` says what to install", 5)
    except KeyboardInterrupt as end:
        keep_exit_code_after_interrupt()
        return _fail("terminated", TERMINATED) if end.args else _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader has gone
        _discard_stdout()
        return BROKEN_PIPE
    except MemoryError:
        _discard_stdout()
        return _fail("not enough memory; give smaller inputs, or fewer at a time (--batch)", RESOURCES)
    except OSError as error:
        _discard_stdout()
        return _fail(f"{error.strerror or error} ({error.filename or 'standard output'})", RESOURCES)
    return 0


def ensure_standard_streams() -> None:
    """Standard streams that are there and take any letter: labels may hold some that a terminal's encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (as long as the process)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """Keep Python from complaining at exit about what could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    print(f"edgerun: {text}", file=sys.stderr)
    return code


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def parse_command_line(words: list[str]) -> tuple[Any, argparse.Namespace]:
    """The command's module and its options; SystemExit with the usage for what cannot be understood.

    A command that starts a program has the default `program`, and gets all words behind `--` in it.
    """
    argparse._ = str  # type: ignore[attr-defined]  # no translations: looking for one loads `locale`, 2 ms and 0.2 MB
    module = _command_module(words[0]) if words else None
    if module is None:
        _overview_parser().parse_args(words[:1])
        raise AssertionError("a parser that knows no such command let it pass")
    text = f"{module.HELP[0].upper()}{module.HELP[1:]}."
    parser = argparse.ArgumentParser(
        f"edgerun {words[0]}",
        description=text,
        epilog=CODES,
        formatter_class=_fixed_width_formatter,
        allow_abbrev=False,
    )
    module.arguments(parser)
    if "--" not in words or parser.get_default("program") is None:
        return module, parser.parse_intermixed_args(words[1:])
    at = words.index("--")
    return module, parser.parse_intermixed_args(words[1:at], argparse.Namespace(program=words[at + 1 :]))


def _command_module(name: str) -> Any:
    """The file of one command, or None; the others are not even looked at."""
    if not name.isidentifier() or name.startswith("_"):
        return None
    for package in command_packages():
        try:
            return importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
    return None


def command_packages() -> tuple[str, ...]:
    """Those that hold a file for each command."""
    return COMMANDS, *extension.find().commands


def _fixed_width_formatter(prog: str) -> argparse.HelpFormatter:
    """A formatter with a fixed width: asking the terminal imports modules that only help would use."""
    width = os.environ.get("COLUMNS", "")
    return argparse.HelpFormatter(prog, width=int(width) if width.isdecimal() and int(width) > 40 else 100)


def _overview_parser() -> argparse.ArgumentParser:
    """The parser that answers `--help` and misspelt commands: it has every command's line, and none of its options."""
    import pkgutil

    parser = argparse.ArgumentParser(prog="edgerun", description="Run an edgekit bundle on this device.", epilog=CODES)
    parser.add_argument("--version", action="version", version=f"edgerun {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    folders = [folder for package in command_packages() for folder in importlib.import_module(package).__path__]
    for name in sorted(found.name for found in pkgutil.iter_modules(folders) if not found.name.startswith("_")):
        commands.add_parser(name, help=_command_module(name).HELP)
    return parser
