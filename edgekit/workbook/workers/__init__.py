"""Works side by side: on processes of this machine, or on the workers of a Dask scheduler.

with open_pool(workers=2) as pool:
    rows = pool.run([Work("a", "package.module:function", {"path": "a"}), ...])
"""

from edgekit.workbook.workers.pool import open_pool, with_cores
from edgekit.workbook.workers.work import Pool, Work

__all__ = ["Pool", "Work", "open_pool", "with_cores"]
