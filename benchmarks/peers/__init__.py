"""The baseline of a finished run, compressed by other toolkits with their own methods.

`toolkits.py` says what each toolkit needs, and `workers/NAME.py` runs in its environment.
"""
