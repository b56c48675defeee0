"""Load tests: MLPerf's LoadGen drives variants and bundles, from raw sample to answer, each in a process of its own.

Call `launcher.run_loads`. LoadGen is native code with state and threads of its own, so it only runs in the worker
process that the launcher starts. There is no LoadGen for devices; `edgerun bench --minutes`
(`device/measure/soak.py`) keeps a fixed rate there.
"""
