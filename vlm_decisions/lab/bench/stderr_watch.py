"""Count the tracebacks that this process prints, including those of MLX and ROS."""

from __future__ import annotations

import os
import sys
import threading


class StderrWatch:
    """Counts the tracebacks on stderr. It passes only them on."""

    def __init__(self) -> None:
        self.count = 0
        self._old = os.dup(2)
        self._python = sys.stderr
        reader, writer = os.pipe()
        os.dup2(writer, 2)
        sys.stderr = os.fdopen(writer, "w", buffering=1)
        self._reader = threading.Thread(target=self._read, args=(reader,), daemon=True)
        self._reader.start()

    def __enter__(self) -> StderrWatch:
        return self

    def __exit__(self, *exception: object) -> None:
        sys.stderr.close()
        sys.stderr = self._python
        os.dup2(self._old, 2)  # the last writer of the pipe: its reader ends
        self._reader.join()
        os.close(self._old)

    def _read(self, reader: int) -> None:
        inside = False
        with os.fdopen(reader, errors="replace") as lines:
            for line in lines:
                if "Traceback (most recent call last)" in line:
                    self.count += 1
                    inside = True
                if inside:
                    os.write(self._old, line.encode())
                    # It ends with the line that names the exception, which is not indented.
                    inside = line.startswith((" ", "Traceback")) or "Traceback (most" in line
