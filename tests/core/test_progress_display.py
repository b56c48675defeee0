"""Progress in a kernel, with and without somebody who watches in JupyterLab: real kernels, real messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

from edgekit.core import progress
from edgekit.core.progress import JUPYTER_SESSION

pytestmark = pytest.mark.processes

CODE = """
import time
from edgekit.core import progress
print("before")
with progress.step("student", "epoch", 10) as step:
    progress.announce("about 3 min")
    for epoch in range(4):
        time.sleep(0.6)
        step.update(epoch + 1, best="97.21%")
print("after")
"""


def environment(**more: str) -> dict[str, str]:
    without = {name: value for name, value in os.environ.items() if name not in (progress.FILE, JUPYTER_SESSION)}
    return {**without, **more}


@contextmanager
def kernel(**more: str) -> Iterator[Any]:
    manager, client = start_new_kernel(env=environment(**more))
    try:
        yield client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def messages(code: str, **more: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with kernel(**more) as client:
        reply = client.execute_interactive(code, output_hook=found.append, timeout=120)
        assert reply["content"]["status"] == "ok", reply
    return found


def test_jupyterlab_sees_one_line_that_updates_and_is_empty_at_the_end() -> None:
    shown = [each for each in messages(CODE, **{JUPYTER_SESSION: "02_distill.ipynb"}) if "display" in each["msg_type"]]
    assert [each["msg_type"] for each in shown] == ["display_data", *["update_display_data"] * (len(shown) - 1)]
    assert len({each["content"]["transient"]["display_id"] for each in shown}) == 1
    first, last = shown[0]["content"]["data"]["text/plain"], shown[-1]["content"]["data"]
    assert first.splitlines()[0] == "about 3 min"
    assert re.fullmatch(r"student · epoch \d of 10 · best 97.21%( · about \d+ s left)? · 0:0\d", first.splitlines()[1])
    assert last == {}


LONG = """
import threading
import time
from edgekit.core import progress
print("before")
with progress.step(""):
    with progress.step("short"):
        pass
    with progress.step("long"):
        time.sleep(3.5)
    time.sleep(1.5)
print("after", threading.active_count())
with progress.step("over soon"):
    pass
"""


def test_a_long_step_that_publishes_nothing_is_shown_in_its_own_cell_and_goes_on() -> None:
    sent: list[dict[str, Any]] = []
    with kernel(**{JUPYTER_SESSION: "02_distill.ipynb"}) as client:
        client.execute_interactive("import threading; print(threading.active_count())", output_hook=sent.append)
        threads = next(each["content"]["text"] for each in sent if each["msg_type"] == "stream").strip()
        sent.clear()
        number = client.execute(LONG)
        assert client.get_shell_msg(timeout=60)["content"]["status"] == "ok"
        while not sent or sent[-1]["content"].get("execution_state") != "idle":
            sent.append(client.get_iopub_msg(timeout=60))
    assert {each["parent_header"].get("msg_id") for each in sent} == {number}
    texts = [each["content"]["data"].get("text/plain") for each in sent if "display" in each["msg_type"]]
    assert all(re.fullmatch(r"long · 0:0\d", text) for text in texts[:3]) and len(set(texts[:3])) == 3
    assert re.fullmatch(r"at work 0:0\d", texts[-2])
    assert texts[-1] is None
    output = "".join(each["content"]["text"] for each in sent if each["msg_type"] == "stream")
    assert output == f"before\nafter {threads}\n", "the thread has ended"


def test_a_frontend_that_has_gone_does_not_end_the_work() -> None:
    broken = "from IPython.core.displaypub import DisplayPublisher\nget_ipython().display_pub.publish = None\n"
    sent = messages(broken + LONG, **{JUPYTER_SESSION: "02_distill.ipynb"})
    assert [each["content"]["text"] for each in sent if each["msg_type"] == "stream"][-1].startswith(
        ("before", "after")
    )


def test_what_is_stored_holds_nothing_of_it() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    NotebookClient(notebook, timeout=120).execute(env=environment(**{JUPYTER_SESSION: "02_distill.ipynb"}))
    nbformat.validate(notebook)
    outputs = notebook.cells[0].outputs
    assert "".join(output.get("text", "") for output in outputs) == "before\nafter\n"
    assert [output.data for output in outputs if output.output_type == "display_data"] == [{}]


def test_papermill_and_nbval_see_nothing_at_all() -> None:
    assert not [each for each in messages(CODE) if "display" in each["msg_type"]]
