"""Devices over SSH: who they are, what runs there, what is missing, and files that arrive over lines that are cut.

Whatever a device answers is a stranger's word: bounded in size, checked for its shape, and stripped before it is shown.
"""
