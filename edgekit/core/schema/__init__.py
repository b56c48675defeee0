"""Every record that a run stores, declared once: result.json, the records of the stages in their artifacts, study.json.

Each topic has a module. A record is a typed dictionary (`record`): stages build it, reports read it, and mypy checks
the keys on both sides. For result.json, `result` provides the check and the published JSON schema, from which the
reference page is generated.
"""
