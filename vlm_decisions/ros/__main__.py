"""`python -m vlm_decisions.ros NAME ...`: run a node by its name, as its program does.

With `--until-input-ends` before the name it also ends when the standard input does: that of a child
ends with its parent, however that one ends.
"""

import sys

from .programs import NODES, main

if __name__ == "__main__":
    until_input_ends = sys.argv[1:2] == ["--until-input-ends"]
    if until_input_ends:
        del sys.argv[1]
    if len(sys.argv) < 2 or sys.argv[1] not in NODES:
        raise SystemExit(f"usage: python -m vlm_decisions.ros {{{','.join(NODES)}}} --ros-args ...")
    sys.argv[0] = sys.argv.pop(1)  # rclpy and --help name the program by it
    raise SystemExit(main(sys.argv[0], until_input_ends=until_input_ends))
