"""Streams of sound and of sensors: bytes, arrays or lines in, an answer for each window out, as soon as it is whole.

One file a part: `source` reads what is there, `sound` and `rows` make moments of it, `cutter` makes
windows of moments, `back_pressure` drops the oldest of those that wait, and `stream` has the model answer. A moment is
a sample of a sound, or a row of sensors. Frames of a camera are `edgekit/runner/inputs/raw_frames.py`.
"""
