"""Render the templates. Values from configs and artifacts are escaped, and a policy forbids all scripts."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).parent
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; form-action 'none'"
)
"""The Content Security Policy (Level 3) of both pages. Even a tag that was not escaped could load and run nothing."""


def render(template: str, **values: object) -> str:
    """Render one of the templates of this folder, with the style sheet inlined."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    css = Markup((TEMPLATES / "page.css").read_text(encoding="utf-8"))
    return environment.get_template(template).render(css=css, policy=Markup(CONTENT_SECURITY_POLICY), **values)
