"""The notebooks: thin, committed without outputs, and in step with the code."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path
from typing import Any

import papermill
import pytest

from edgekit.core.config import STAGES
from edgekit.workbook import notebook
from edgekit.workbook.config_file import own_fields, parse_stage, shared_options, stage_config
from edgekit.workbook.plan import load_plan
from edgekit.workbook.stage import COMMON_PARAMETERS

ROOT = Path(__file__).parent.parent
NOTEBOOKS = [ROOT / "notebooks" / f"{number:02d}_{stage}.ipynb" for number, stage in enumerate(STAGES, 1)]
FIELD = ROOT / "notebooks" / notebook.FIELD_NOTEBOOK
"""No stage: it reads reports from devices, and takes no option of a config."""
SEARCH = ROOT / "notebooks" / notebook.SEARCH_NOTEBOOK
"""No stage: it reads a study."""
MOST_CELLS, MOST_LINES, MOST_PARAMETERS = 12, 15, 12


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def parameters(path: Path) -> dict[str, ast.AnnAssign]:
    (cell,) = (cell for cell in cells(path, "code") if "parameters" in cell["metadata"].get("tags", []))
    return {node.target.id: node for node in ast.parse(source(cell)).body}  # type: ignore[attr-defined]


def bound(path: Path) -> set[str]:
    """Names that a notebook's cells import or assign, without those of its parameters' cell."""
    others = [cell for cell in cells(path, "code") if "parameters" not in cell["metadata"].get("tags", [])]
    nodes = [node for cell in others for node in ast.walk(ast.parse(source(cell)))]
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.asname or alias.name for node in imports for alias in node.names}
    return names | {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def test_there_is_one_notebook_for_each_stage() -> None:
    assert sorted((ROOT / "notebooks").glob("*.ipynb")) == [SEARCH, *NOTEBOOKS, FIELD]


@pytest.mark.parametrize("path", [SEARCH, *NOTEBOOKS, FIELD], ids=lambda path: path.stem)
class TestForm:
    def test_committed_without_outputs(self, path: Path) -> None:
        for cell in cells(path, "code"):
            assert cell["outputs"] == []
            assert cell["execution_count"] is None

    def test_thin(self, path: Path) -> None:
        code = cells(path, "code")
        assert len(code) <= MOST_CELLS
        for cell in code:
            tree = ast.parse(source(cell))
            imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
            imported = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)
            if "parameters" not in cell["metadata"].get("tags", []):
                assert len(source(cell).splitlines()) - imported <= MOST_LINES
            found = [type(node).__name__ for node in ast.walk(tree)]
            assert not {"FunctionDef", "ClassDef", "AsyncFunctionDef", "Lambda"} & set(found)

    def test_every_name_it_takes_from_edgekit_is_there(self, path: Path) -> None:
        """A renamed function fails here in a second, and not in the third notebook of a run."""
        trees = [ast.parse(source(cell)) for cell in cells(path, "code")]
        found: dict[str, Any] = {}
        for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
            for alias in node.names if str(node.module).startswith("edgekit") else ():
                parent = importlib.import_module(str(node.module))
                if not hasattr(parent, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                found[alias.asname or alias.name] = getattr(parent, alias.name)
        used = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        for node in used:
            if isinstance(node.value, ast.Name) and node.value.id in found:
                assert hasattr(found[node.value.id], node.attr), ast.unparse(node)

    def test_links_lead_somewhere(self, path: Path) -> None:
        for cell in cells(path, "markdown"):
            for link in re.findall(r"\]\(([^)#]+)", source(cell)):
                assert link.startswith("../docs/explanation/") or (path.parent / link).is_file(), link

    def test_every_parameter_is_a_typed_scalar_with_a_comment(self, path: Path) -> None:
        (cell,) = (cell for cell in cells(path, "code") if "parameters" in cell["metadata"].get("tags", []))
        for line in source(cell).splitlines():
            assert re.fullmatch(r"[a-z0-9_]+: (bool|int|float|str) = \S.*  # .+", line), line

    def test_twelve_parameters_at_most(self, path: Path) -> None:
        """Those that people change first; the others are in the table of all options, which is folded away."""
        assert len(parameters(path)) <= MOST_PARAMETERS

    def test_papermill_knows_every_parameter_with_type_default_and_help(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        known = papermill.inspect_notebook(path)
        assert not caplog.records, "papermill says which line it cannot read"
        assert list(known) == list(parameters(path))
        for name, node in parameters(path).items():
            assert known[name]["inferred_type_name"] == ast.unparse(node.annotation)
            assert ast.literal_eval(known[name]["default"]) == ast.literal_eval(node.value)  # type: ignore[arg-type]
            assert len(known[name]["help"]) > 5, name


@pytest.mark.parametrize("path", [SEARCH, *NOTEBOOKS, FIELD], ids=lambda path: path.stem)
def test_no_name_takes_the_place_of_a_parameter(path: Path) -> None:
    """The stage is opened with the notebook's names: an import of the same name would be taken for the option."""
    assert not bound(path) & set(parameters(path))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
class TestStage:
    """What a notebook of a stage has beside that."""

    def test_two_changes_to_try_of_options_that_there_are(self, path: Path) -> None:
        (words,) = (source(cell) for cell in cells(path, "markdown") if source(cell).startswith("## Try this"))
        changes = re.findall(r"(?m)^- (.+)$", words)
        assert len(changes) == 2
        known, stage, plan = parameters(path), path.stem[3:], load_plan(ROOT / "configs" / "digits.yaml")
        for change in changes:
            assert "xpect" in change
            for name, value in re.findall(r"`([a-z0-9_]+) = ([^`]+)`", change):
                assert type(ast.literal_eval(value)).__name__ == ast.unparse(known[name].annotation), (name, value)
                if name != "settings":
                    parse_stage(stage, {**plan.section(stage), name: ast.literal_eval(value)}, shared_options(plan.run))

    def test_the_parameters_are_options_of_the_stage_with_the_digits_values(self, path: Path) -> None:
        stage = path.stem[3:]
        plan = load_plan(ROOT / "configs" / "digits.yaml")
        found = {name: ast.literal_eval(node.value) for name, node in parameters(path).items()}  # type: ignore[arg-type]
        common = {name: found.pop(name) for name in COMMON_PARAMETERS}
        assert common == {"config": "configs/digits.yaml", "out": "artifacts", "settings": ""}
        assert found.items() <= plan.scalars(stage).items()

    def test_the_parameters_types_are_those_of_the_config(self, path: Path) -> None:
        fields = stage_config(path.stem[3:]).model_fields
        for name, node in parameters(path).items():
            if name not in COMMON_PARAMETERS:
                declared = fields[name].annotation
                written = ast.unparse(node.annotation)
                assert getattr(declared, "__name__", "") == written or written == "str", (name, declared)

    def test_every_option_is_described(self, path: Path) -> None:
        config = stage_config(path.stem[3:])
        for name in own_fields(config):
            assert config.model_fields[name].description, f"{path.stem[3:]}.{name} has no description"
