"""`python -m vlm_decisions.ros NAME ...`: run a node by its name, as its program does."""

import sys

from .programs import NODES, main

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in NODES:
        raise SystemExit(f"usage: python -m vlm_decisions.ros {{{','.join(NODES)}}} --ros-args ...")
    sys.argv[0] = sys.argv.pop(1)  # rclpy and --help name the program by it
    raise SystemExit(main(sys.argv[0]))
