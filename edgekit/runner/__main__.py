"""`python -m edgekit.runner`, the same as `edgerun.pyz`."""

import sys

from edgekit.runner.cli import main

if __name__ == "__main__":
    sys.exit(main())
