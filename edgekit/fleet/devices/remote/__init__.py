"""Programs that are sent to a device and run there, even if it has no runner yet.

Each is a single file that imports only the standard library. They avoid syntax that old Pythons cannot parse, so that
such a Python can still report its version.
"""
