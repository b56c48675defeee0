"""Teachers that come as files: raw samples in, logits out.

A kind of file is one module with `open(path, threads) -> Opened`, used in a process of its own only:
`model_file.logits` starts it, `worker.py` is it. The format is detected from the content, not the extension.
"""
