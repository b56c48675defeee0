"""The records that a run stores, each declared once: result.json, the stages' records in their artifacts, study.json.

Each topic has a module. A record is a typed dictionary (see the module `record`): stages build it, reports read it, and
mypy checks the keys on both sides. For result.json, the module `result` provides the check and the published JSON
schema, from which the reference page is generated.
"""
