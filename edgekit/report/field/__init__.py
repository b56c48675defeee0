"""Field reports on the workstation: read, compared with each other, and what follows from them.

`reports.py` reads the files that `edgerun predict --report` writes, `latency.py` compares counts of latencies,
`compare.py` puts two reports side by side, `history.py` shows a folder of them in tables and figures, and `advice.py`
has the rules for what to do next.
"""
