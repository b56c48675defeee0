"""`python -m edgekit.runner`, the same as `edgerun.pyz`."""

from edgekit.runner._start import exit_process
from edgekit.runner.cli import main

if __name__ == "__main__":
    exit_process(main())
