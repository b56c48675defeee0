"""Field reports at the desk: read, held against each other, and what follows from them.

`reports.py` reads the files that `edgerun predict --report` writes, `latency.py` compares counts of latencies,
`compare.py` puts two reports side by side, and `advice.py` has the rules for what to do next.
"""
