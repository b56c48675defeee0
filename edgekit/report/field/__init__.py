"""Read and compare field reports on the workstation, and recommend what to do next.

`reports.py` reads the files that `edgerun predict --report` writes, `latency.py` compares counts of latencies,
`comparison.py` compares two reports, `history.py` shows a folder of reports in tables and figures, and `advice.py` has
the rules for what to do next.
"""
