"""`python -m vlm_decisions`: the same as `vlm-decisions`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
