"""Templates to text; whatever comes from a config or an artifact is escaped."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

ROOM = Path(__file__).parent


def render(template: str, **values: object) -> str:
    """One of this folder's templates, with the style sheet inlined."""
    rooms = Environment(
        loader=FileSystemLoader(ROOM),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    css = Markup((ROOM / "page.css").read_text())
    return rooms.get_template(template).render(css=css, **values)
