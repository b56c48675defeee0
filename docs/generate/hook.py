"""What mkdocs calls: the navigation picks pages up by folder, and the executed notebooks become pages of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from docs.generate.notebooks import NoRun, pages

FOLDER = "notebooks"
REST = "/*"
"""An entry of the navigation that ends so stands for the pages of a folder."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder in the place of `folder/*`: its `index.md` first, then by title."""
    config.nav = [_expanded(entry, Path(config.docs_dir)) for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the notebooks of the run that `extra.run` names; the build ends where there is none."""
    try:
        found = pages(Path(config.config_file_path).parent / config.extra["run"])
    except NoRun as error:
        raise PluginError(str(error)) from None
    for page in found:
        files.append(File.generated(config, f"{FOLDER}/{page.name}.md", content=page.markdown))
        for name, data in page.pictures.items():
            files.append(File.generated(config, f"{FOLDER}/{name}", content=data))
    return files


def on_post_build(config: MkDocsConfig) -> None:
    """Point the links of `llms.txt` at the pages of the site, which are HTML where the repository has Markdown."""
    path = Path(config.site_dir) / "llms.txt"
    path.write_text(path.read_text(encoding="utf-8").replace(".md)", ".html)"), encoding="utf-8")


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, dict):
        return {title: _expanded(inside, docs) for title, inside in entry.items()}
    if isinstance(entry, list):
        return [_expanded(inside, docs) for inside in entry]
    if not entry.endswith(REST):
        return entry
    folder = docs / entry.removesuffix(REST)
    return [page.relative_to(docs).as_posix() for page in sorted(folder.glob("*.md"), key=_place)]


def _place(page: Path) -> tuple[bool, str]:
    first = next((line for line in page.read_text().splitlines() if line.startswith("# ")), page.stem)
    return page.name != "index.md", first.casefold()
