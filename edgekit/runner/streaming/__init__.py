"""Streams of sound and of sensors: bytes, arrays or lines in, and an answer as soon as each window is complete.

`source` reads what has arrived, `audio` and `rows` convert it to moments, `window_cutter` cuts windows from moments,
`back_pressure` drops the oldest waiting ones, and `stream` lets the model answer. A moment is a sample of a sound, or a
row of sensor values. For a camera's frames, see `edgekit/runner/inputs/raw_frames.py`.
"""
