"""A kernel that ends with all processes that it started: nothing outlives its notebook."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

from jupyter_client.manager import AsyncKernelManager


class Kernel(AsyncKernelManager):
    """Jupyter's own manager ends its kernel only; this one ends the kernel's whole process group."""

    async def _async_cleanup_resources(self, restart: bool = False) -> None:
        group = getattr(self.provisioner, "pgid", None)
        await super()._async_cleanup_resources(restart)
        if sys.platform == "win32" or restart or not group:
            return
        if group != os.getpgrp():
            with suppress(ProcessLookupError, PermissionError):  # nothing was left
                os.killpg(group, signal.SIGKILL)

    cleanup_resources = _async_cleanup_resources
