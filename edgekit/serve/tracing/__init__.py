"""Spans of OpenTelemetry, for `serve --trace-to`. Nothing of it is imported without that option."""
