"""TLS for clients, and one clear line for each way in which a connection fails."""

from __future__ import annotations

import socket
import ssl

from edgekit.device.live.sinks.base import UnreachableError
from edgekit.runner.errors import InputError


def client_context(where: str, ca_file: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's CAs, or those in a file, with an optional client certificate.

    Raises InputError, beginning with `where`, if a file cannot be used.
    """
    option = "ca_file", ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
        option = "certificate_file", certificate
        if certificate:
            context.load_cert_chain(certificate, key, password="")  # an encrypted key fails instead of asking
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{where}: {option[0]}: {option[1]}: {why}; name a file in PEM format") from None
    return context


def connection_error(error: OSError, where: str, host: str, port: int) -> InputError:
    """Return the error that says why no connection was made, beginning with `where`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return InputError(
            f"{where}: the certificate of {host} is refused ({error.verify_message}); give the file of its CA as "
            "ca_file, and the host name that the certificate has"
        )
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "no reason").lower().replace("_", " ")
        return InputError(f"{where}: TLS with {host}:{port} failed ({reason}); check that the port is one for TLS")
    if isinstance(error, socket.gaierror):
        return UnreachableError(f"{where}: no host {host!r} is known; check the name, or use an address")
    if isinstance(error, ConnectionRefusedError):
        return UnreachableError(f"{where}: nothing listens on {host}:{port}; start the server, or correct the port")
    if isinstance(error, ConnectionResetError):
        return UnreachableError(f"{where}: {host}:{port} ended the connection; check the port, and whether it uses TLS")
    if isinstance(error, (TimeoutError, socket.timeout)):  # two classes before Python 3.10
        return UnreachableError(f"{where}: {host}:{port} does not answer; check the address and the network")
    return UnreachableError(f"{where}: {host}:{port}: {error.strerror or error}; check the address and the network")
