"""Types of the rows of result.json: what stages record, result.json holds and reports show.

One module for each part of `edgekit/report/result`, whose schema says what a field means. A test holds the two to one
another; mypy checks every key.
"""
