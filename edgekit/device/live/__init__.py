"""`edgerun live`: from a camera, microphone or sensor through a model and rules to messages, switches and a page.

`types` has the values that pass between the parts. A file in `sources`, in `rules` or in `sinks` is one kind of each,
and the engine in `engine` connects them. The runner knows nothing of this package.
"""

import sys

from edgekit.runner.errors import BackendError

if sys.platform == "win32":
    raise BackendError("live needs process groups and files that Windows does not have; run it in WSL 2 or on Linux")
