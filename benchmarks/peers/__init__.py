"""The baseline of a finished run, compressed by other toolkits as they do it by themselves.

`toolkits.py` says what each peer needs, and `workers/NAME.py` runs in its environment.
"""
