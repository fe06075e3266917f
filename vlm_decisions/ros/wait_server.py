"""``~/wait_for``: the action that ends when a condition over the answers has held for a time.

A goal that waits costs no thread and no task: decisions push it on in the thread that makes them,
and the executor's thread finishes those that are over. A goal that makes no sense, or of which
there are too many, is accepted and aborted at once, since a rejection has no room for the reason.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import QoSProfile

from vlm_decisions.action import WaitFor

from ..decision import Decision
from ..questions import Question
from ..runtime.waiting import Wait, WaitError
from ..views import View
from .convert import decision_to_msg

MAX_WAITS = 256
"""Goals that may wait at the same time; one more is refused."""

BURST, BURST_S = 8, 0.02
"""Results sent at a time, and seconds until the next: the middleware keeps ten for a client."""

FEEDBACK_S = 0.25
"""Feedback of a goal comes so often, whatever the rates of its questions, seconds."""


@dataclass(eq=False)
class _Goal:
    """A goal that waits; `result`: what came of it, None while it waits."""

    handle: ServerGoalHandle
    wait: Wait
    began_s: float
    end_s: float
    result: WaitFor.Result | None = None

    def end(self, latest: Mapping[str, Decision], why: str = "") -> None:
        """Be over: reached, or else `why`."""
        self.result = WaitFor.Result(
            success=not why, message=why or f"held: {self.wait.state(latest)}",
            decisions=[decision_to_msg(one) for one in dict.fromkeys(latest.values())],
            waited_s=time.monotonic() - self.began_s)


class Watched(Protocol):
    """What the waits need of the node."""

    def watched(self) -> tuple[Sequence[Question], Sequence[View]]:
        """Return the questions that are answered now, and the views. Raises RuntimeError."""

    def newest(self, view: str) -> Mapping[str, Decision]:
        """Return a view's newest decisions by question id."""


class WaitServer:
    """Offers the action of a node."""

    def __init__(self, node: Node, backend: Watched) -> None:
        self._node, self._backend = node, backend
        self._lock = threading.Lock()
        self._goals: list[_Goal] = []
        self._ended: dict[bytes, WaitFor.Result] = {}  # until rclpy asks for it
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._guard = node.create_guard_condition(self._settle)
        node.create_timer(FEEDBACK_S, self._look, clock=steady)
        self._pace = node.create_timer(BURST_S, self._settle, clock=steady)
        self._pace.cancel()
        self._server = ActionServer(
            node, WaitFor, "~/wait_for", execute_callback=self._finish,
            handle_accepted_callback=self._accept, cancel_callback=self._cancel,
            result_service_qos_profile=QoSProfile(depth=MAX_WAITS))

    def decision(self, decision: Decision) -> None:
        """Push the waits on; from any thread, after the node has published the decision."""
        with self._lock:
            reached = [goal for goal in self._goals
                       if goal.result is None and goal.wait.update(decision)]
            for goal in reached:
                goal.end(self._latest(goal.wait))
        if reached:
            self._guard.trigger()

    def questions_changed(self) -> None:
        """End the waits that name what is not there any more."""
        with self._lock:
            waiting = bool(self._goals)
        if waiting:
            questions, views = self._standing()
            self._end(lambda goal: goal.wait.follow(questions, views))

    def _standing(self) -> tuple[dict[str, Question], list[str]]:
        questions, views = self._backend.watched()
        return {question.id: question for question in questions}, [view.name for view in views]

    def _latest(self, wait: Wait) -> dict[str, Decision]:
        """Return the newest decisions that count for a wait, by the names in its condition."""
        found = {view: self._backend.newest(view) for view, _ in set(wait.sources.values())}
        return {name: found[view][question_id]
                for name, (view, question_id) in wait.sources.items() if question_id in found[view]}

    def end_all(self, reason: str) -> None:
        """End every wait with a reason."""
        self._end(lambda goal: reason)

    def _end(self, why: Callable[[_Goal], str]) -> None:
        with self._lock:
            for goal in self._goals:
                reason = why(goal) if goal.result is None else ""
                if reason:
                    goal.end(self._latest(goal.wait), reason)
        self._settle()

    # -- the action ------------------------------------------------------------------------------

    def _accept(self, handle: ServerGoalHandle) -> None:
        request, now_s = handle.request, time.monotonic()
        try:
            if not (math.isfinite(request.timeout_s) and request.timeout_s >= 0.0):
                raise WaitError("timeout_s must be seconds from 0 on (0: no limit), not "
                                f"{request.timeout_s:g}")
            wait = Wait(request.condition, request.for_s, *self._standing(), request.view)
            if len(self._goals) >= MAX_WAITS:
                raise WaitError(f"{MAX_WAITS} goals are waiting already")
        except (WaitError, RuntimeError) as error:
            self._hand_in(handle, WaitFor.Result(message=str(error)))
            return
        goal = _Goal(handle, wait, now_s, now_s + (request.timeout_s or math.inf))
        with self._lock:
            self._goals.append(goal)
            latest = self._latest(wait)
            if wait.begin(latest):
                goal.end(latest)
        self._settle()

    def _cancel(self, handle: ServerGoalHandle) -> CancelResponse:
        self._guard.trigger()  # the handle knows that it is cancelled once this has returned
        return CancelResponse.ACCEPT

    def _look(self) -> None:
        """Give feedback, and end what has waited too long."""
        self._settle()
        now_ns = self._node.get_clock().now().nanoseconds
        with self._lock:
            told = [(goal, goal.wait.state(self._latest(goal.wait))) for goal in self._goals
                    if goal.result is None]
        for goal, state in told:
            goal.handle.publish_feedback(WaitFor.Feedback(
                holds=state.holds, held_s=state.held_s, names=list(state.names),
                answers=list(state.answers), p=list(state.p),
                age=(now_ns - state.end_ns) / 1e9 if state.end_ns else math.inf))

    def _settle(self) -> None:
        """Finish the goals that are over; in the executor's thread."""
        now_s = time.monotonic()
        with self._lock:
            for goal in self._goals:
                if goal.result is not None:
                    continue
                if goal.handle.is_cancel_requested:
                    goal.end(self._latest(goal.wait), "cancelled")
                elif now_s > goal.end_s:
                    latest = self._latest(goal.wait)
                    goal.end(latest, f"not within {goal.end_s - goal.began_s:g} s: "
                                     f"{goal.wait.state(latest)}")
            over = [goal for goal in self._goals if goal.result is not None]
            sent = over[:BURST]
            self._goals = [goal for goal in self._goals if goal not in sent]
        self._pace.cancel()
        if len(over) > BURST:
            self._pace.reset()
        for goal in sent:
            self._hand_in(goal.handle, goal.result)

    def _hand_in(self, handle: ServerGoalHandle, result: WaitFor.Result) -> None:
        if self._node.executor is None:  # nothing spins any more: no reply can be sent
            return
        self._ended[bytes(handle.goal_id.uuid)] = result
        handle.execute()

    def _finish(self, handle: ServerGoalHandle) -> WaitFor.Result:
        result = self._ended.pop(bytes(handle.goal_id.uuid))
        if handle.is_cancel_requested:
            handle.canceled()
        elif result.success:
            handle.succeed()
        else:
            handle.abort()
        return result
