"""`python -m formwork serve`: the executable `formwork`, where no folder of scripts is in PATH."""

import os
import sys

from ._executables import find

if __name__ == "__main__":
    path = find("formwork")
    os.execv(path, [path, *sys.argv[1:]])
