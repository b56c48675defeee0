"""The server's entry point, `python -m edgekit.serve DESCRIPTOR`.

The command `serve` starts it and passes the settings through the file descriptor DESCRIPTOR.
"""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from contextlib import suppress

from edgekit.device.commands.serve import Settings
from edgekit.runner.errors import InputError, RunnerError
from edgekit.serve.admin import open_admin
from edgekit.serve.handover import Secrets
from edgekit.serve.log import log, unhandled
from edgekit.serve.supervisor import Supervisor


async def _run(settings: Settings, secrets: Secrets) -> None:
    supervisor = Supervisor(settings, secrets)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(unhandled)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    start_task = asyncio.create_task(supervisor.start())
    stop_task = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((start_task, stop_task), return_when=asyncio.FIRST_COMPLETED)
        if not start_task.done():
            start_task.cancel()
            with suppress(asyncio.CancelledError):
                await start_task
            return
        start_task.result()
        if settings.admin_port >= 0:
            log(f"metrics and repository on {await open_admin(supervisor)}")
        if settings.grpc_port >= 0:
            log(f"gRPC on {supervisor.grpc_address}")
        served = ", ".join(" = ".join(entry.names) for entry in supervisor.entries)
        log(f"ready on {supervisor.address}: {served}")
        await stop.wait()
        log("stopping: finishing the requests in progress")
    finally:
        await supervisor.stop()


def _check_certificate(settings: Settings) -> None:
    """Raise InputError if the certificate and key cannot be used. Called before any bundle is validated."""
    for path in (settings.certificate, settings.key):
        if path and not os.path.isfile(path):
            raise InputError(f"{path}: no such file; --certificate and --key name PEM files")
    if bool(settings.certificate) != bool(settings.key):
        raise InputError("TLS needs both --certificate and --key")
    if settings.certificate:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.certificate, settings.key, password="")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{settings.certificate} and {settings.key}: must be a certificate and its key in PEM format, "
                f"without a password "
                f"({getattr(error, 'reason', None) or getattr(error, 'strerror', None) or error})"
            ) from None


def main(settings: Settings) -> int:
    """Run the server until it is stopped, and return the exit code."""
    try:
        secrets = Secrets.read(settings)
        _check_certificate(settings)
        asyncio.run(_run(settings, secrets))
    except RunnerError as error:
        log(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    with open(int(sys.argv[1]), "rb") as descriptor:
        descriptor.seek(0)
        command_settings = Settings.from_json(descriptor.read())
    sys.exit(main(command_settings))
