"""`python -m docs.generate` writes the generated parts of the reference again."""

from docs.generate import blocks

for page in blocks.write():
    print(f"wrote {page}")
