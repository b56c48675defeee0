"""Show which ways to prepare the input of a model file were tried before the run."""

from __future__ import annotations

from edgekit.core.preprocess_record import PreprocessRecord, TriedPreprocess
from edgekit.report.formatting import percent
from edgekit.report.tables import Table


def table(record: PreprocessRecord | None) -> Table | None:
    """Return the accuracy with each way and how far it is behind the chosen one; None without a record."""
    if record is None:
        return None
    chosen, *others = record.tried
    rows = [(chosen.input, percent(chosen.accuracy), "chosen")]
    rows += [(each.input, percent(each.accuracy), _behind(each)) for each in others]
    hidden = f"; {record.left_out} less accurate ones are not shown" if record.left_out else ""
    title = f"Preprocessing that edgekit init tried on {record.samples} samples of train on {record.date}{hidden}"
    return Table(("input", record.metric, "behind the first, pp"), rows, title)


def _behind(tried: TriedPreprocess) -> str:
    least, most = tried.behind_pp
    return f"{least:.1f} to {most:.1f}"
