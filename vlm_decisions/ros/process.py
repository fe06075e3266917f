"""Run one node as a process: SIGINT and SIGTERM end it soon, without a traceback.

The exit code is then 0, unless the node says that its work was cut short.

The executor spins in a thread of its own and the main thread waits for the signal, so that a
callback that takes long (a model that loads) delays no shutdown, and no KeyboardInterrupt is
raised in the middle of one.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

import rclpy
from rclpy.exceptions import ParameterException
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.logging import get_logger
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from .middleware import let_images_pass, remove_segments

SIGNALS = (signal.SIGINT, signal.SIGTERM)

GRACE_S = 1.5
"""Seconds from the signal after which the process ends even if a thread of it does not."""


def run(make_node: Callable[[Callable[[], None]], Node], args: list[str] | None = None, *,
        about: str | None = None, signalled: int = 0, until_input_ends: bool = False) -> int:
    """Make a node, spin it until a signal, and return the process's exit code.

    ``make_node`` is given a function that asks for the end, for nodes that finish by themselves.
    A node may have a method ``interrupted``, called with the signal's number, a method ``close``,
    called before it is destroyed, and an ``exit_code``. Returns ``signalled`` where a signal ended
    it, unless that is 0, else the node's code, else 0; 1, with the reason logged, where the node
    cannot be made (bad arguments, bad parameters). With ``until_input_ends`` the end of the
    standard input is as good as SIGTERM.
    With ``about`` (the node's documentation), ``--help`` prints that and starts nothing.
    """
    given = sys.argv[1:] if args is None else args
    if about and not {"-h", "--help"}.isdisjoint(given):
        print(f"usage: {os.path.basename(sys.argv[0])} --ros-args [-p NAME:=VALUE]... "
              f"[-r FROM:=TO]... [--params-file FILE]\n\n{about.strip()}")
        return 0
    with _wake_on_signals([0] if until_input_ends else []) as (wait, stop):
        try:
            let_images_pass()
            rclpy.init(args=args, signal_handler_options=SignalHandlerOptions.NO)
            node = make_node(stop)
        except (ParameterException, ValueError, OSError, RuntimeError) as error:
            get_logger("vlm_decisions").fatal(f"cannot start: {error}")
            rclpy.try_shutdown()
            return 1
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        stopping = threading.Event()
        thread = threading.Thread(target=_spin, args=(executor, node, stopping, stop),
                                  name="executor", daemon=True)
        thread.start()
        came = wait()
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # a second one must not cut the end short
        if came and hasattr(node, "interrupted"):
            node.interrupted(came)
        code = (signalled if came else 0) or getattr(node, "exit_code", 0)
        deadline = threading.Timer(GRACE_S, _give_up, (code,))
        deadline.daemon = True
        deadline.start()
        stopping.set()
        close = getattr(node, "close", None)
        if close is not None:
            close()
        executor.wake()
        thread.join()
        executor.remove_node(node)
        executor.shutdown()
        node.destroy_node()
        rclpy.try_shutdown()
        deadline.cancel()
        deadline.join()
        if len(threading.enumerate()) > 1:
            # A model that still loads, say: the interpreter would wait for it or fall over it.
            _give_up(code)
    return code


def _spin(executor: SingleThreadedExecutor, node: Node, stopping: threading.Event,
          stop: Callable[[], None]) -> None:
    """Spin until told to stop; an exception from a callback is logged and spinning goes on."""
    pause_s = 0.05
    while not stopping.is_set():
        try:
            executor.spin_once(timeout_sec=0.5)
            pause_s = 0.05
        except ExternalShutdownException:
            break
        except Exception:
            if not stopping.is_set():
                node.get_logger().error(f"error in a callback:\n{traceback.format_exc()}")
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, 1.0)  # a fault at every turn must not flood the log
    stop()


@contextlib.contextmanager
def _wake_on_signals(
    inputs: list[int]
) -> Iterator[tuple[Callable[[], int], Callable[[], None]]]:
    """Yield (wait for a signal or stop, stop); waiting returns the signal's number, or 0.

    The end of one of the inputs is like SIGTERM.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for number in SIGNALS:
        signal.signal(number, lambda *_: None)

    def stop() -> None:
        with contextlib.suppress(OSError):
            os.write(writer, b"\0")

    def wait() -> int:
        while True:
            ready, _, _ = select.select([reader, *inputs], [], [])
            if reader in ready:
                return os.read(reader, 1)[0]
            if not all(os.read(one, 4096) for one in ready):
                return signal.SIGTERM

    try:
        yield wait, stop
    finally:
        signal.set_wakeup_fd(wakeup)
        os.close(reader)
        os.close(writer)


def _give_up(code: int) -> None:
    """End the process: something native does not return. Decisions are flushed line by line."""
    remove_segments()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
