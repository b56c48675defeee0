"""Devices over SSH: what they are, what runs there, what is missing, and transfers over unreliable connections.

Answers of devices are untrusted input: limited in size, checked for their structure, and sanitized before they are
shown.
"""
