"""A Jupyter kernel manager that also ends the processes that the kernel started."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from jupyter_client.manager import AsyncKernelManager


class ProcessGroupKernelManager(AsyncKernelManager):
    """End the whole process group of a kernel. Jupyter's own manager ends only the kernel itself."""

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        group = getattr(self.provisioner, "pgid", None)
        await super()._async_cleanup_resources(restart)
        if sys.platform == "win32" or restart or not group:
            return
        if group != os.getpgrp():
            with suppress(ProcessLookupError, PermissionError):  # the group has ended already
                os.killpg(group, signal.SIGKILL)

    cleanup_resources = _async_cleanup_resources
