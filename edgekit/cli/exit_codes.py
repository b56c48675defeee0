"""End a command after an error with one message on stderr and the error's exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from edgekit.core.errors import EdgekitError, ResourceError
from edgekit.runner.errors import RunnerError, keep_exit_code_after_interrupt

INTERRUPTED = 130
TERMINATED = 143
BROKEN_PIPE = 141


@contextmanager
def errors_as_exit_codes(retained: str = "finished stages are kept") -> Iterator[None]:
    """Turn an error into one message on stderr and its exit code, without a traceback.

    `retained` tells the user what is kept after an interruption.
    """
    try:
        yield
    except (EdgekitError, RunnerError) as error:
        print(f"edgekit: {error}", file=sys.stderr)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:  # the reader of the output has exited, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        print(f"edgekit: {error.strerror or error}: {error.filename or 'a file of the run'}", file=sys.stderr)
        raise typer.Exit(ResourceError.exit_code) from None
    except KeyboardInterrupt as interrupt:
        keep_exit_code_after_interrupt()
        word, code = (
            ("terminated", TERMINATED) if type(interrupt).__name__ == "Terminated" else ("interrupted", INTERRUPTED)
        )
        print(f"edgekit: {word}; {retained}, run the same command again to continue", file=sys.stderr)
        raise typer.Exit(code) from None
