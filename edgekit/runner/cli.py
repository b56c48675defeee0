"""`edgerun.pyz`: finds the command, parses its options, and turns errors into exit codes."""

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
    """Run a command and return its exit code (see `CODES`). Raises SystemExit with code 2 for a misspelt command."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # NumPy would start threads that nothing here uses, which takes 20 ms
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
        return _fail(f"numpy cannot be imported ({_first_line(error)}); `edgerun doctor` shows what to install", 5)
    except KeyboardInterrupt as end:
        keep_exit_code_after_interrupt()
        return _fail("terminated", TERMINATED) if end.args else _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reading end of the pipe was closed
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
    """Make sure that the standard streams exist and accept any character.

    Labels may hold characters that a terminal's encoding lacks.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the parent process closed it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open as long as the process)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """Keep Python from complaining at exit about output that could not be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    print(f"edgerun: {text}", file=sys.stderr)
    return code


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def parse_command_line(arguments: list[str]) -> tuple[Any, argparse.Namespace]:
    """Return the command's module and its options. Raises SystemExit with the usage for arguments that it cannot parse.

    A command that starts a program has the default `program`, which receives all arguments after `--`.
    """
    argparse._ = str  # type: ignore[attr-defined]  # no translations: looking for one loads `locale`, which takes 2 ms and 0.2 MB
    module = _command_module(arguments[0]) if arguments else None
    if module is None:
        _overview_parser().parse_args(arguments[:1])
        raise AssertionError("a parser that knows no such command let it pass")
    description = f"{module.HELP[0].upper()}{module.HELP[1:]}."
    parser = argparse.ArgumentParser(
        f"edgerun {arguments[0]}",
        description=description,
        epilog=CODES,
        formatter_class=_fixed_width_formatter,
        allow_abbrev=False,
    )
    module.arguments(parser)
    if "--" not in arguments or parser.get_default("program") is None:
        return module, parser.parse_intermixed_args(arguments[1:])
    separator = arguments.index("--")
    return module, parser.parse_intermixed_args(
        arguments[1:separator], argparse.Namespace(program=arguments[separator + 1 :])
    )


def _command_module(name: str) -> Any:
    """Return the module of one command, or None. The modules of other commands are not imported."""
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
    """Return the packages that hold a module for each command."""
    return COMMANDS, *extension.find().commands


def _fixed_width_formatter(prog: str) -> argparse.HelpFormatter:
    """Return a help formatter of fixed width.

    Asking the terminal for its width would import modules that only help needs.
    """
    width = os.environ.get("COLUMNS", "")
    return argparse.HelpFormatter(prog, width=int(width) if width.isdecimal() and int(width) > 40 else 100)


def _overview_parser() -> argparse.ArgumentParser:
    """Return the parser for `--help` and misspelt commands.

    It has a line for each command, but none of their options.
    """
    import pkgutil

    parser = argparse.ArgumentParser(prog="edgerun", description="Run an edgekit bundle on this device.", epilog=CODES)
    parser.add_argument("--version", action="version", version=f"edgerun {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    folders = [folder for package in command_packages() for folder in importlib.import_module(package).__path__]
    for name in sorted(module.name for module in pkgutil.iter_modules(folders) if not module.name.startswith("_")):
        commands.add_parser(name, help=_command_module(name).HELP)
    return parser
