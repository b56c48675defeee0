"""Entry point of `python -m edgekit.runner`, which is the same program as `edgerun.pyz`."""

from edgekit.runner._start import exit_process
from edgekit.runner.cli import main

if __name__ == "__main__":
    exit_process(main())
