"""Bundles behind a socket: our own server, and what other servers need to take a bundle over."""
