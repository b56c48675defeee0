"""Teachers that come as files: raw samples in, logits out.

A kind of file is one module with `open(path, threads) -> Opened`, used in a process of its own only: `file.logits`
starts it, `child.py` is it. What a file is, its content decides and not its name.
"""
