"""Load: variants and bundles driven by MLPerf's LoadGen, from raw sample to answer, each in a process of its own.

`launch.drive` is what others call. LoadGen is native code with state and threads of its own, so it only ever runs in
the worker that `launch` starts. On a device there is no LoadGen: `edgerun bench --minutes`
(`device/measure/soak.py`) holds a fixed rate there.
"""
