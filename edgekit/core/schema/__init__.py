"""Every record that a run stores, declared once: result.json, what the stages record in their artifacts, study.json.

A module for each topic. A record is a typed dictionary (`record`): stages build it, reports read it, and mypy checks
the keys on both sides. Of result.json, `result` makes the check and the published JSON schema, of which the reference
page is generated.
"""
