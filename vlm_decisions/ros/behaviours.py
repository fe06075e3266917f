"""Leaves for py_trees behaviour trees that act on decisions.

They keep the newest message of ``<node>/decisions/<question id>`` (with several views:
``<node>/<view>/decisions/<question id>``) and judge it at each tick by
answer, probability and the age of its evidence. `py_trees` is a ROS 2 package, and what the extra
`trees` installs; py_trees_ros is not needed, but hands its node over as these leaves expect.

``setup`` needs the ROS node: ``tree.setup(node=node)``. The node must spin (``spin_once`` before
each tick, or an executor in another thread).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import py_trees
from py_trees.common import Access, Status
from rclpy.action import ActionClient
from rclpy.node import Node
from rclpy.qos import QoSDurabilityPolicy, QoSProfile, QoSReliabilityPolicy
from rclpy.time import Time

from vlm_decisions.action import WaitFor
from vlm_decisions.conditions import ConditionError, parse_condition
from vlm_decisions.decision import label_name, probability
from vlm_decisions.files.listing import listed, there_are
from vlm_decisions.kinds import KindError, kind_of, plain_kind
from vlm_decisions.msg import Decision, QuestionArray
from vlm_decisions.questions import Question
from vlm_decisions.srv import Ask
from vlm_decisions.texts import is_visible, normal
from vlm_decisions.views import ALL

#: Matches the publisher: a leaf that is set up late still gets the newest decision.
NEWEST = QoSProfile(depth=1, reliability=QoSReliabilityPolicy.RELIABLE,
                    durability=QoSDurabilityPolicy.TRANSIENT_LOCAL)

SERVER = "/decision_node"
LAPSED = (Status.FAILURE, Status.RUNNING)


class Newest:
    """The newest decision on one question of one view, and how far it can be trusted now.

    `view`: whose answers count; empty for the only one that the question is asked of.
    """

    def __init__(self, node: Node, question: str, server: str = SERVER, view: str = "") -> None:
        self._node, self._question, self._server, self._view = node, question, server, view
        self.msg: Decision | None = None
        self._trouble = ""
        self._subscriptions = [
            node.create_subscription(QuestionArray, f"{server}/questions", self._judge, NEWEST)]
        self._subscribe("")  # of the node's first view, where it began as the only one
        if view:
            self._subscribe(f"/{view}")

    def _subscribe(self, prefix: str) -> None:
        self._subscriptions.append(self._node.create_subscription(
            Decision, f"{self._server}{prefix}/decisions/{self._question}", self._take, NEWEST))

    def _take(self, msg: Decision) -> None:
        if not self._view or msg.view == self._view:
            self.msg = msg

    def _judge(self, told: QuestionArray) -> None:
        """See whose answers count; `told`: the node's questions and views."""
        views = [view.name for view in told.views]
        if self._view:
            known = there_are(filter(None, views), self._view, "one, without a name")
            self._trouble = "" if self._view in views else (
                f"there is no view '{self._view}' ({known})")
            return
        placed = next((one.view for one in told.questions if one.id == self._question), "")
        of = views if placed in ("", ALL) else [placed]
        self._trouble = "" if len(of) < 2 else (
            f"it is answered of several views, name one: {listed(of)}")
        if len(of) == 1 and of[0]:
            self._view = of[0]
            self._subscribe(f"/{self._view}")

    def age_s(self) -> float:
        """Seconds from the newest frame of the evidence to now; inf without evidence."""
        msg = self.msg
        if msg is None or (msg.t_end.sec == 0 and msg.t_end.nanosec == 0):
            return math.inf
        return (self._node.get_clock().now() - Time.from_msg(msg.t_end)).nanoseconds / 1e9

    def lapsed(self, max_age_s: float) -> str:
        """Return why the decision says nothing about now, empty if it does."""
        msg = self.msg
        if self._trouble:
            return self._trouble
        if msg is None:
            return "no decision yet"
        if msg.answer == Decision.UNKNOWN:
            return f"unknown: {msg.reason}" if msg.reason else "unknown"
        age_s = self.age_s()
        return f"stale: the evidence is {age_s:.2f} s old" if age_s > max_age_s else ""

    def close(self) -> None:
        """End the subscriptions."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)


class AnswerIs(py_trees.behaviour.Behaviour):
    """Condition: the answer to a question is `answer` (or one of several) with evidence of now.

    With `label`, the answer is that of one label of an any_of. SUCCESS if it is, with a probability
    of that answer of at least `min_p`; FAILURE if it is another. Where nothing is known (no
    decision, unknown, evidence older than `max_age_s`) it is `when_lapsed`: FAILURE, or RUNNING to
    wait. `feedback_message` says which. `view`: whose answers count; one must be named where the
    question is asked of several.
    """

    def __init__(
        self, name: str, question: str, answer: str | Iterable[str] = Decision.YES, *,
        label: str | None = None, min_p: float = 0.0, max_age_s: float = 1.0,
        when_lapsed: Status = Status.FAILURE, view: str = "", server: str = SERVER,
    ) -> None:
        """Raises ValueError for settings that make no sense."""  # noqa: D401
        super().__init__(name)
        self.label = None if label is None else normal(label)
        self.answers = tuple(map(normal, (answer,) if isinstance(answer, str) else answer))
        _check(question, self.answers, max_age_s, when_lapsed)
        if not 0.0 <= min_p <= 1.0:
            raise ValueError(f"min_p must be 0 to 1, not {min_p!r}")
        self.question, self.view, self.server = question, view, server
        self.min_p, self.max_age_s, self.when_lapsed = min_p, max_age_s, when_lapsed
        self._newest: Newest | None = None

    def setup(self, **kwargs: Any) -> None:
        """Subscribe. Raises KeyError without `node`."""
        self._newest = Newest(_node(self, kwargs), self.question, self.server, self.view)

    def update(self) -> Status:
        """Judge the newest decision."""
        why = self._newest.lapsed(self.max_age_s)
        if why:
            self.feedback_message = f"{self.question}: {why}"
            return self.when_lapsed
        msg = self._newest.msg
        name, answer, p = self.question, msg.answer, probability(msg)
        if self.label is not None:
            if not msg.answers or self.label not in msg.options:
                self.feedback_message = (
                    f"{name}: it has no label '{self.label}' (its labels: "
                    f"{', '.join(msg.options) if msg.answers else 'none'})")
                return Status.FAILURE
            name, answer = label_name(name, self.label), msg.answers[msg.options.index(self.label)]
            p = probability(msg, self.label)
        self.feedback_message = f"{name}: {answer} ({p:.2f})"
        likely = self.min_p == 0.0 or p >= self.min_p
        return Status.SUCCESS if answer in self.answers and likely else Status.FAILURE

    def shutdown(self) -> None:
        """End the subscription."""
        if self._newest is not None:
            self._newest.close()
            self._newest = None


class DecisionToBlackboard(py_trees.behaviour.Behaviour):
    """Write the newest decision on a question to the blackboard, as key `key` (the question's id).

    SUCCESS with a message whose evidence is of now; else the key is set to None, so that nobody
    acts on an old one, and the result is `when_lapsed`. `view`: as of AnswerIs.
    """

    def __init__(
        self, name: str, question: str, *, key: str | None = None, max_age_s: float = 1.0,
        when_lapsed: Status = Status.FAILURE, view: str = "", server: str = SERVER,
    ) -> None:
        """Raises ValueError for settings that make no sense."""  # noqa: D401
        super().__init__(name)
        _check(question, (Decision.YES,), max_age_s, when_lapsed)
        self.question, self.view, self.server = question, view, server
        self.key = key or question
        self.max_age_s, self.when_lapsed = max_age_s, when_lapsed
        self._newest: Newest | None = None
        self.blackboard = self.attach_blackboard_client(name=name)
        self.blackboard.register_key(key=self.key, access=Access.WRITE)
        self.blackboard.set(self.key, None)

    def setup(self, **kwargs: Any) -> None:
        """Subscribe. Raises KeyError without `node`."""
        self._newest = Newest(_node(self, kwargs), self.question, self.server, self.view)

    def update(self) -> Status:
        """Write the newest decision, or None."""
        why = self._newest.lapsed(self.max_age_s)
        self.blackboard.set(self.key, None if why else self._newest.msg)
        if why:
            self.feedback_message = f"{self.question}: {why}"
            return self.when_lapsed
        self.feedback_message = f"{self.question}: {self._newest.msg.answer}"
        return Status.SUCCESS

    def shutdown(self) -> None:
        """End the subscription."""
        if self._newest is not None:
            self._newest.close()
            self._newest = None


class AskOnce(py_trees.behaviour.Behaviour):
    """Action: ask one question about now and wait for the answer, each time the leaf is entered.

    RUNNING until it comes; SUCCESS if it is `answer` (or one of several; with an empty one any
    answer but unknown is), else FAILURE; FAILURE as well if there is none within `timeout_s` of
    the steady clock. `decision` holds the answer, and the blackboard if `key` is given. `kind`: of
    question, by default yes/no, or with options a choice. `view`: which to ask about; one must
    be named where there are several.
    """

    def __init__(
        self, name: str, text: str, answer: str | Iterable[str] = Decision.YES, *,
        options: Sequence[str] = (), kind: str = "", timeout_s: float = 5.0,
        key: str | None = None, view: str = "", server: str = SERVER,
    ) -> None:
        """Raises ValueError for settings that make no sense."""  # noqa: D401
        super().__init__(name)
        if not is_visible(text):
            raise ValueError("there is nothing to ask: the text is empty")
        if not 0.0 < timeout_s < math.inf:
            raise ValueError(f"timeout_s must be above 0, not {timeout_s!r}")
        self.text, self.options = text, list(map(normal, options))
        if isinstance(answer, str):
            answer = (answer,) if answer else ()
        self.answers = tuple(map(normal, answer))
        self.kind = kind or plain_kind(self.options)
        question = Question("ask", text, kind=self.kind, options=tuple(self.options))
        for one in self.answers:
            try:
                kind_of(question).canonical(question, one)
            except KindError as error:
                raise ValueError(f"the question cannot be answered {one!r}: it {error}") from error
        self.timeout_s, self.view, self.server = timeout_s, view, server
        self.decision: Decision | None = None
        self.key = key
        if key:
            self.blackboard = self.attach_blackboard_client(name=name)
            self.blackboard.register_key(key=key, access=Access.WRITE)
        self._node: Node | None = None
        self._client: Any = None
        self._future: Any = None
        self._end = 0.0

    def setup(self, **kwargs: Any) -> None:
        """Make the service client. Raises KeyError without `node`."""
        self._node = _node(self, kwargs)
        self._client = self._node.create_client(Ask, f"{self.server}/ask")

    def initialise(self) -> None:
        """Ask anew."""
        self.decision, self._future = None, None
        self._end = time.monotonic() + self.timeout_s

    def update(self) -> Status:
        """Send the question once the service is there, then wait for its answer."""
        if self._future is None and self._client.service_is_ready():
            self._future = self._client.call_async(Ask.Request(
                text=self.text, kind=self.kind, options=self.options, view=self.view,
                timeout_s=float(self.timeout_s)))
        if self._future is not None and self._future.done():
            return self._judge(self._future.result())
        if time.monotonic() > self._end:
            self.feedback_message = (
                f"no answer within {self.timeout_s:g} s" if self._future
                else f"{self.server}/ask is not there")
            self._give_up()
            return Status.FAILURE
        self.feedback_message = "asked" if self._future else f"waiting for {self.server}/ask"
        return Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        """Forget a question that is still being answered when the leaf is interrupted."""
        if new_status == Status.INVALID:
            self._give_up()

    def shutdown(self) -> None:
        """Remove the client."""
        if self._client is not None:
            self._node.destroy_client(self._client)
            self._client = None

    def _judge(self, response: Any) -> Status:
        if response is None or not response.success:
            self.feedback_message = response.message if response else "the call failed"
            return Status.FAILURE
        if len(response.decisions) > 1:
            views = listed(one.view for one in response.decisions)
            self.feedback_message = f"it was answered of several views, name one: {views}"
            return Status.FAILURE
        self.decision = response.decision
        if self.key:
            self.blackboard.set(self.key, response.decision)
        answer = response.decision.answer
        self.feedback_message = answer
        good = answer in self.answers if self.answers else answer != Decision.UNKNOWN
        return Status.SUCCESS if good else Status.FAILURE

    def _give_up(self) -> None:
        if self._future is not None and not self._future.done():
            self._client.remove_pending_request(self._future)
        self._future = None


class _Wait:
    """One goal of `WaitUntil` on its way. All but `drop` happens in the executor's thread."""

    def __init__(self) -> None:
        self.is_sent = self._is_dropped = False
        self.result: WaitFor.Result | None = None
        self._handle: Any = None

    def accepted(self, handle: Any) -> None:
        """Take the goal's handle, and ask for the result."""
        self._handle = handle
        if self._is_dropped:
            handle.cancel_goal_async()
        else:
            handle.get_result_async().add_done_callback(self._ended)

    def drop(self) -> None:
        """Cancel the goal, as soon as there is one."""
        self._is_dropped = True
        if self._handle is not None:
            self._handle.cancel_goal_async()

    def _ended(self, future: Any) -> None:
        self.result = future.result().result


class WaitUntil(py_trees.behaviour.Behaviour):
    """Action: wait until a condition over several answers has held for `for_s` seconds.

    The node itself watches (its action ``~/wait_for``), so that a tree that ticks slowly misses
    nothing. RUNNING until then; SUCCESS when it has held; FAILURE when it has not within
    `timeout_s` (0: no limit), when it cannot hold any more, or when the node is gone;
    `feedback_message` says which. `result` holds the action's result. An interrupted wait is
    cancelled. `view`: whose answers count where a question is asked of several and the condition
    does not say (`door.person`).
    """

    def __init__(
        self, name: str, condition: str, *, for_s: float = 0.0, timeout_s: float = 0.0,
        view: str = "", server: str = SERVER,
    ) -> None:
        """Raises ValueError for settings that make no sense."""  # noqa: D401
        super().__init__(name)
        try:
            parse_condition(condition)
        except ConditionError as error:
            raise ValueError(f"condition: {error}") from error
        for what, value in (("for_s", for_s), ("timeout_s", timeout_s)):
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{what} must be seconds from 0 on, not {value!r}")
        self.condition, self.server = condition, server
        self.for_s, self.timeout_s, self.view = for_s, timeout_s, view
        self.result: WaitFor.Result | None = None
        self._node: Node | None = None
        self._client: ActionClient | None = None
        self._guard: Any = None
        self._wait: _Wait | None = None

    def setup(self, **kwargs: Any) -> None:
        """Make the action client. Raises KeyError without `node`."""
        self._node = _node(self, kwargs)
        # Both in the executor's thread where there is one: rclpy breaks on a client that another
        # thread has half made, and can lose a reply that comes while one still sends the request.
        self._guard = self._node.create_guard_condition(self._send)
        if self._node.executor is None:
            self._make_client()
        else:
            self._guard.trigger()

    def initialise(self) -> None:
        """Wait anew."""
        self.result = self._wait = None
        self._end = time.monotonic() + self.timeout_s if self.timeout_s else math.inf

    def update(self) -> Status:
        """Send the goal once the action is there, then wait for its end."""
        there = self._client is not None and self._client.server_is_ready()
        if self._wait is None and there:
            self._wait = _Wait()
            self._guard.trigger()
            self.feedback_message = f"{self.condition}: asked"
        elif self._wait is None:
            self.feedback_message = f"waiting for {self.server}/wait_for"
            if time.monotonic() > self._end:
                self.feedback_message = f"{self.server}/wait_for is not there"
                return Status.FAILURE
        elif self._wait.result is not None:
            self.result = self._wait.result
            self.feedback_message = self.result.message
            return Status.SUCCESS if self.result.success else Status.FAILURE
        elif not there:
            self.feedback_message = f"{self.server}/wait_for is gone"
            return Status.FAILURE
        return Status.RUNNING

    def terminate(self, new_status: Status) -> None:
        """Cancel a wait that is interrupted."""
        if new_status == Status.INVALID and self._wait is not None and self.result is None:
            self._wait.drop()

    def shutdown(self) -> None:
        """Remove the client."""
        if self._guard is not None:
            self._node.destroy_guard_condition(self._guard)
            self._guard = None
        if self._client is not None:
            self._client.destroy()
            self._client = None

    def _make_client(self) -> None:
        self._client = ActionClient(self._node, WaitFor, f"{self.server}/wait_for")

    def _send(self) -> None:
        if self._client is None:
            self._make_client()
        wait = self._wait
        if wait is None or wait.is_sent:
            return
        wait.is_sent = True
        goal = WaitFor.Goal(condition=self.condition, view=self.view, for_s=float(self.for_s),
                            timeout_s=float(self.timeout_s))
        self._client.send_goal_async(goal, feedback_callback=self._told).add_done_callback(
            lambda sent: wait.accepted(sent.result()))

    def _told(self, msg: Any) -> None:
        told = msg.feedback
        answers = ", ".join(f"{name} {answer}" for name, answer in zip(told.names, told.answers))
        held = f", held for {told.held_s:.1f} s" if told.holds else ""
        self.feedback_message = f"{self.condition}: {answers}{held}"


def _check(question: str, answers: Sequence[str], max_age_s: float, when_lapsed: Status) -> None:
    if not question:
        raise ValueError("no question is named")
    if not answers or not all(answers):
        raise ValueError(f"no answer is named for '{question}'")
    if Decision.UNKNOWN in answers:
        raise ValueError("unknown is no answer to wait for: it is what when_lapsed is for")
    if not max_age_s > 0.0:
        raise ValueError(f"max_age_s must be above 0, not {max_age_s!r}")
    if when_lapsed not in LAPSED:
        raise ValueError(f"when_lapsed must be FAILURE or RUNNING, not {when_lapsed}")


def _node(leaf: py_trees.behaviour.Behaviour, kwargs: dict[str, Any]) -> Node:
    try:
        return kwargs["node"]
    except KeyError:
        raise KeyError(f"'{leaf.name}' needs the ROS node: tree.setup(node=node)") from None
