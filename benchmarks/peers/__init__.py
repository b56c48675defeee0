"""The baseline of a finished run, compressed by other toolkits as they do it by themselves.

`toolkits/NAME.py` says what a peer needs, `workers/NAME.py` runs in its environment. The files' name is its key.
"""
