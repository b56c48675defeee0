"""`python -m edgekit.core.schema` prints the JSON schema of result.json."""

from __future__ import annotations

import json

from edgekit.core.schema.result import json_schema

if __name__ == "__main__":
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
