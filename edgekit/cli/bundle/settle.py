"""What the user left open, settled by the model itself: its task, the names of its values, the columns of its table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from edgekit.cli.bundle.examine import ModelFacts
from edgekit.cli.bundle.options import Options
from edgekit.core.errors import ConfigError
from edgekit.runner.errors import InputError
from edgekit.runner.inputs import table

Say = Callable[[str], None]
SHOWN = 8


def settled(options: Options, found: ModelFacts, say: Say) -> Options:
    """The options with a task, and with labels and columns where model and inputs name them; what was found is said."""
    task = options.task
    if task == "auto":
        task = "regression" if found.is_regressor else "classification"
    own = _own_labels(task, found)
    if own and not options.labels:
        say(f"labels      {_some(own)}: the model's own names")
    elif sorted(own) == sorted(options.labels) and own != options.labels:
        raise ConfigError(
            f"--labels: {_some(options.labels)}; the model's own order is {_some(own)}: give that, or leave them out"
        )
    columns = options.columns or _columns(options, found, say)
    return replace(options, task=task, labels=options.labels or own, columns=columns)


def _own_labels(task: str, found: ModelFacts) -> tuple[str, ...]:
    """Those that a classic model names: its classes, or what its one value is called."""
    if task == "classification":
        return found.classes
    single = found.is_regressor and found.output.shape[1:] == (1,)
    return (found.output.name,) if task == "regression" and single else ()


def _columns(options: Options, found: ModelFacts, say: Say) -> tuple[str, ...]:
    """The columns that a vector's features have in the first table among the inputs; none where there is no table."""
    if (
        len(found.inputs) > 1
        or len(found.input.shape) != 2
        or options.kind not in (None, "vector")
        or options.sample_rate_hz
    ):
        return ()
    paths = [each for given in options.golden for each in (sorted(given.rglob("*.csv")) if given.is_dir() else [given])]
    path = next((each for each in paths if each.suffix.lower() == ".csv" and each.is_file()), None)
    if path is None:
        return ()
    features = found.input.shape[1]
    header, numbers = _header(path)
    columns = header if len(header) == features else numbers
    if len(columns) != features:
        raise ConfigError(
            f"--columns: {path} has {len(header)} columns ({_some(header)}), the model takes {features} features; "
            "name its columns, in the order in which the model was trained"
        )
    say(f"columns     {_some(columns)}: those of {path.name}, in this order")
    return columns


def _header(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All names of a table, and those of columns with a number in the first row."""
    try:
        with open(path, "rb") as stream:
            first = next(table.pieces(str(path), stream.read(table.LARGEST_BYTES), 1))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    row = first.rows[0] if first.rows else [""] * len(first.header)
    numbers = [name for name, cell in zip(first.header, row, strict=True) if table.is_number(cell)]
    return first.header, tuple(numbers)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)})" if len(names) > SHOWN else "")
