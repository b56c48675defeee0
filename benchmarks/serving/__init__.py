"""What serving costs, against other servers and against no server at all: `python -m benchmarks.serving`."""
