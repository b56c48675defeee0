"""The cost of serving, compared with other servers and with calls without a server: `python -m benchmarks.serving`."""
