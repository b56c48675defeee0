"""Files of tests go on after a native crash: the test that crashed fails, and a new worker runs the rest of its file.

The scheduler of pytest-xdist 3.8 for `--dist loadfile` hands all files of a dead worker to the next one: the test that
crashed, which then crashes again, and files that are finished, for which a worker waits forever. This subclass hands on
only what has not begun. It uses the attributes `assigned_work`, `workqueue` and `registered_collections`, which the
documentation of `LoadScopeScheduling` describes, and its methods `_pending_of` and `_reschedule`; look at it again with
a new version of pytest-xdist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Replace the scheduler of `--dist loadfile`; others stay."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling
    from xdist.workermanage import WorkerController

    class CrashTolerantScheduling(LoadFileScheduling):
        """Never runs a test again that crashed its worker."""

        def remove_node(self, node: WorkerController) -> str | None:
            """Return the test that was running when the worker died, and queue the others that it had not run."""
            workload = self.assigned_work.pop(node)
            unfinished = {scope: tests for scope, tests in workload.items() if not all(tests.values())}
            if not unfinished:
                return None
            tests = next(iter(unfinished.values()))
            crashed = next(nodeid for nodeid, is_done in tests.items() if not is_done)
            tests[crashed] = True
            for scope, tests in reversed(unfinished.items()):
                if not all(tests.values()):
                    self.workqueue[scope] = tests
                    self.workqueue.move_to_end(scope, last=False)
            for other in self.nodes:
                self._reschedule(other)
            return crashed

        def _reschedule(self, node: WorkerController) -> None:
            """Give a worker two tests at least: it runs one only when it knows the next, or that there is none.

            A worker that has just replaced another is known before it has collected its tests, and then gets none.
            """
            if node not in self.registered_collections:
                return
            super()._reschedule(node)
            if self.workqueue and not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    return CrashTolerantScheduling(config, log)
