"""Programs that are sent to a device and run there, before the runner is: each a file of its own, standard library.

They import nothing of edgekit, and avoid syntax that old Pythons cannot parse, so that these can report their age.
"""
