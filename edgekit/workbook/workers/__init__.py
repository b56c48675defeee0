"""Run jobs in parallel, in processes of this machine or on the workers of a Dask scheduler.

with open_pool(workers=2) as pool:
    results = pool.run([Job("a", "package.module:function", {"path": "a"}), ...])
"""

from edgekit.workbook.workers.jobs import Job, Pool
from edgekit.workbook.workers.pool import limit_to_cores, open_pool

__all__ = ["Job", "Pool", "limit_to_cores", "open_pool"]
