"""Programs that are sent to a device and run there, before the runner is: each a file of its own, standard library.

They read no module of edgekit, and avoid what old Pythons cannot parse: those are to say that they are old.
"""
