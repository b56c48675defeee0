"""Teachers of a distillation that are not a single network: model files and ensembles.

`model_file.logits` runs a model file on raw samples, in a process of its own whose code is `worker.py`. The format is
detected from the content, not from the extension. The modules that open the formats are in `edgekit.models.files`.
"""
