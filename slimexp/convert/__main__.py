"""`python -m slimexp.convert`: what `scripts/convert.py` does, also where only the package is installed."""

import sys

from slimexp.convert.command import main

if __name__ == "__main__":
    sys.exit(main())
