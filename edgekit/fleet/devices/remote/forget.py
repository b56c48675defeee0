"""Remove a folder in `fleet/temporary`, and all folders there that were abandoned.

Arguments: the home, the folder's name.
"""

import os
import shutil
import sys
import time

ABANDONED_S = 86_400


def main(home: str, name: str) -> None:
    folder = os.path.join(home, "fleet", "temporary")
    for each in os.listdir(folder) if os.path.isdir(folder) else ():
        path = os.path.join(folder, each)
        if each == name or time.time() - os.lstat(path).st_mtime > ABANDONED_S:
            shutil.rmtree(path, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:3])
