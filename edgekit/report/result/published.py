"""How the schema of result.json tells a model of the config that leaves its absent fields out."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue


class FieldsOfModels(GenerateJsonSchema):
    """Of a model with a serializer around its own: its fields, where pydantic would tell any object."""

    def ser_schema(self, schema: Any) -> JsonSchemaValue | None:
        """None, which means the model itself, where the serializer only leaves fields out."""
        return None if schema["type"] == "function-wrap" else super().ser_schema(schema)
