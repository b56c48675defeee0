"""Streams of sound and of sensors: bytes, arrays or lines in, and an answer as soon as each window is complete.

A moment is a sample of a sound, or a row of sensor values. `source` reads the data that have arrived, `audio` and
`rows` convert them to moments, `window_cutter` cuts windows from moments, `back_pressure` drops the oldest windows if
too many are waiting, and `stream` lets the model answer. For a camera's frames, see
`edgekit/runner/inputs/raw_frames.py`.
"""
