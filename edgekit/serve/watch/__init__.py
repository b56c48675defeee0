"""`serve --watch`: whether the models still see and answer what they did in validation.

Each worker looks at some of its samples (`watcher.py`); the supervisor merges what they saw and judges (`verdicts.py`).
"""
