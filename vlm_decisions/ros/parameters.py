"""The nodes' parameters: descriptors with units and ranges, and the questions' dynamic ones.

Of the decision node's there are two kinds: those read when the node configures (they can be set
while it is unconfigured, and say so otherwise), and ``questions.<id>.{rate_hz,enter,exit,ema}``,
which act at once. A set of question parameters is judged as a whole, with the values that stay,
before any is applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from ..files.listing import nearest
from ..frames import MODES
from ..learn.corrections import MAX_CORRECTIONS
from ..questions import Question, QuestionError
from ..reuse import REUSE_MODES, REUSE_RANGES, ReuseSettings
from ..runtime.settings import RANGES, RuntimeSettings
from ..sources.images import MAX_PIXELS
from ..sources.messages import TRANSPORTS
from .matching import RELIABILITIES


class ParameterError(ValueError):
    """A parameter with a value that cannot be used; the message names it."""


@dataclass(frozen=True)
class Spec:
    """One parameter: its default, what it means, its unit, and its range or its choices."""

    name: str
    default: Any
    text: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    read_only: bool = False

    def descriptor(self) -> ParameterDescriptor:
        """Return the ROS descriptor."""
        out = ParameterDescriptor(description=self.text, read_only=self.read_only)
        if self.choices:
            out.additional_constraints = "one of " + ", ".join(self.choices)
        if self.low is not None and isinstance(self.default, float):
            out.floating_point_range = [
                FloatingPointRange(from_value=float(self.low), to_value=float(self.high))]
        elif self.low is not None:
            out.integer_range = [
                IntegerRange(from_value=int(self.low), to_value=int(self.high), step=1)]
        return out

    def check(self, value: Any) -> None:
        """Raise ParameterError for a value that the descriptor alone would let pass."""
        if self.choices and value not in self.choices:
            raise ParameterError(f"{self.name} must be one of {', '.join(self.choices)}, "
                                 f"not {value!r}")
        if isinstance(value, float) and not math.isfinite(value):
            raise ParameterError(f"{self.name} must be a finite number, not {value}")


_RUNTIME = RuntimeSettings()
_REUSE = _RUNTIME.reuse
SPECS = (
    Spec("autostart", True, "Configure and activate by itself at start.", read_only=True),
    Spec("model", "sim_desk", "Embedded model (sim_desk), local path, or hub name."),
    Spec("heads_dir", "", "Folder of *.npz heads; empty: the shipped ones; none: no heads."),
    Spec("questions_file", "desk", "YAML file of questions, or the name of a shipped one; "
                                   "empty: start without questions."),
    Spec("views_file", "", "YAML file with the key views: several cameras, regions or samplings; "
                           "empty: those of questions_file, else the one of the topic image."),
    Spec("image_transport", "raw", "Which image topic to read: image, or image/ + the transport's "
                                   "name.", choices=tuple(TRANSPORTS)),
    Spec("reliability", "auto", "Reliability of the image subscription; auto: what the image's "
                                "publishers offer.", choices=RELIABILITIES),
    Spec("stamp_source", "header", "Frame time: the header's stamp, or the time of arrival.",
         choices=("header", "arrival")),
    Spec("mode", _RUNTIME.mode, "stream: one running model state; window: recomputed per group; "
                                "image: the newest frame alone, as decision models see it; auto: "
                                "image for a decision model, else stream.",
         choices=MODES),
    Spec("sample_hz", _RUNTIME.fps, "Frames taken per second of frame time, Hz.", *RANGES["fps"]),
    Spec("window_groups", _RUNTIME.window_groups, "Groups of 2 frames that the model sees.",
         *RANGES["window_groups"]),
    Spec("window_refresh", _RUNTIME.window_refresh,
         "In mode window: groups after which the window is computed anew; in between it is moved "
         "on, an approximation for models with full attention in all layers.",
         *RANGES["window_refresh"]),
    Spec("queue_groups", _RUNTIME.queue_groups,
         "Groups that may wait for the model; the oldest is dropped.", *RANGES["queue_groups"]),
    Spec("max_age_s", _RUNTIME.max_age_s,
         "Without a newer frame for this long, answers become unknown, seconds.",
         *RANGES["max_age_s"]),
    Spec("scene_change", _RUNTIME.scene_change,
         "Cosine distance between successive groups that makes every question due at once; "
         "0: never.", *RANGES["scene_change"]),
    Spec("cut", _RUNTIME.cut,
         "Share of the picture that a cut changes at least from one frame to the next, and more "
         "than the frames before it. A group across a cut is not asked about, and smoothing begins "
         "anew after it; 0: never.", *RANGES["cut"]),
    Spec("tier2_budget_s", 0.0, "Time a group's language-model questions may take, seconds; "
                                "the most overdue go first; 0: no limit.", 0.0, 60.0),
    Spec("reuse", _REUSE.mode, "Which visual tokens are encoded. off: all; pixels: those "
                               "whose pixels changed; vectors: those that the video's motion "
                               "vectors name. An approximation.",
         choices=REUSE_MODES),
    Spec("reuse_threshold", _REUSE.threshold,
         "Mean difference of 8 x 8 pixels from which on a token has changed, grey levels.",
         *REUSE_RANGES["threshold"]),
    Spec("reuse_brightness", _REUSE.brightness,
         "Divide out one brightness ratio per image before comparing (flicker, exposure)."),
    Spec("reuse_full_above", _REUSE.full_above,
         "Share of changed tokens above which all are encoded.", *REUSE_RANGES["full_above"]),
    Spec("reuse_refresh_groups", _REUSE.refresh_groups,
         "All tokens are encoded at the latest so many groups after the last time; 0: never.",
         *REUSE_RANGES["refresh_groups"]),
    Spec("reuse_skip_still", _REUSE.skip_still,
         "Where nothing changed again, neither append nor ask: the last answers stand."),
    Spec("pixel_budget", 0, "Pixels of a frame that the model sees; 0: the model's own.",
         0, MAX_PIXELS),
    Spec("dtype", "auto", "What the model computes in; auto: float32 on a CPU, bfloat16 on a GPU.",
         choices=("auto", "float32", "bfloat16", "float16")),
    Spec("self_check", "warn", "At load, compare the shared pass with the model's ordinary one on "
                               "this device; refuse: fail configure where it is wrong.",
         choices=("refuse", "warn", "off")),
    Spec("outer_vision_tokens", False, "Put all groups between vision tokens of their own, as "
                                       "transformers from 5.24 on does."),
    Spec("max_image_pixels", MAX_PIXELS, "Larger images are refused before decoding, pixels.",
         1, 2**28),
    Spec("min_image_value", 0, "Value of a 16-bit image that is shown as black.", 0, 65534),
    Spec("max_image_value", 65535, "Value of a 16-bit image that is shown as white: 4095 for a "
                                   "sensor of 12 bits.", 1, 65535),
    Spec("load_timeout_s", 600.0, "Longest time for the model to load, seconds.", 1.0, 3600.0),
    Spec("overlay_hz", 5.0, "Largest rate of the overlay image, Hz.", 0.1, 30.0),
    Spec("log_file", "", "JSONL file to append every decision to; empty: none."),
    Spec("log_max_mb", 50.0, "Size at which log_file is moved to .1 and begun anew, megabytes.",
         0.001, 1e5),
    Spec("log_keep", 5, "Older log files kept, as log_file.1, .2, ...", 0, 1000),
    Spec("questions_save_file", "", "YAML file that the questions are saved to at each change, and "
                                    "that is read instead of questions_file once it exists; "
                                    "empty: they are saved on request only."),
    Spec("save_dir", "", "The one folder that ~/save_questions may write into; empty: any."),
    Spec("learn_dir", "", "Folder that corrections are kept in, made where it is not there; empty: "
                          "none are taken."),
    Spec("learn", "on", "Learn from the corrections in learn_dir while the node runs, in a thread "
                        "of its own; adopted is what is better on held-out spans.",
         choices=("off", "on")),
    Spec("learn_keep", MAX_CORRECTIONS, "Corrections kept in learn_dir; the oldest gives way.",
         1, 100000),
    Spec("evidence_dir", "", "Folder to record what changes of answers and events rest on, made "
                             "where it is not there; empty: nothing is."),
    Spec("evidence_max_mb", 500.0, "Size of evidence_dir from which on the oldest entries are "
                                   "removed, megabytes.", 1.0, 1e5),
    Spec("clip_before_s", 3.0, "An event's clip begins so long before it, seconds.", 0.0, 60.0),
    Spec("clip_after_s", 2.0, "An event's clip ends so long after it, seconds.", 0.0, 60.0),
)
NAMES = tuple(spec.name for spec in SPECS)
_BY_NAME = {spec.name: spec for spec in SPECS}

#: Parameters that are of no effect while another one has its default.
_GOES_WITH = {
    "reuse": ("reuse_threshold", "reuse_brightness", "reuse_full_above", "reuse_refresh_groups",
              "reuse_skip_still"),
    "log_file": ("log_max_mb", "log_keep"),
    "learn_dir": ("learn", "learn_keep"),
    "evidence_dir": ("evidence_max_mb", "clip_before_s", "clip_after_s"),
}

QUESTION_PREFIX = "questions."
QUESTION_SPECS = (
    Spec("rate_hz", 4.0, "Answers per second of frame time, Hz, above 0.", 0.0, 100.0),
    Spec("enter", 0.65, "Yes when p rises to this probability; above exit.", 0.0, 1.0),
    Spec("exit", 0.35, "No when p falls to this probability; below enter.", 0.0, 1.0),
    Spec("ema", 0.7, "Weight of the newest value in the smoothing, above 0.", 0.0, 1.0),
)
QUESTION_FIELDS = tuple(spec.name for spec in QUESTION_SPECS)


class ParameterRules:
    """Mixed into a node: what setting a parameter means in this package.

    A value that the parameter has already is no change, so whatever was dumped can be loaded, a
    whole number is a number (``2`` for a parameter that is 2.0), and ``off`` is a word.
    """

    def set_parameters_atomically(self, parameter_list: list[Parameter]) -> SetParametersResult:
        """Set parameters, all or none (rclpy's method, which its services call as well)."""
        given = [self._as_declared(parameter) for parameter in parameter_list]
        changed = [parameter for parameter in given if not self._has(parameter)]
        if given and not changed:
            return SetParametersResult(successful=True)
        return super().set_parameters_atomically(changed)

    def set_parameters(self, parameter_list: list[Parameter]) -> list[SetParametersResult]:
        """Set parameters one by one (rclpy's method)."""
        return [self.set_parameters_atomically([parameter]) for parameter in parameter_list]

    def _as_declared(self, parameter: Parameter) -> Parameter:
        if not self.has_parameter(parameter.name):
            return parameter
        return as_meant(parameter, self.get_parameter(parameter.name).type_)

    def _has(self, parameter: Parameter) -> bool:
        if not self.has_parameter(parameter.name):
            return False
        present = self.get_parameter(parameter.name)
        return (present.type_, present.value) == (parameter.type_, parameter.value)


def as_meant(parameter: Parameter, wanted: Parameter.Type) -> Parameter:
    """Return the parameter as what YAML made something else of, where its type is `wanted`.

    A whole number where a decimal one is wanted; ``off`` and ``on``, which YAML reads as false and
    true, where they are words to choose from.
    """
    if (wanted, parameter.type_) == (Parameter.Type.DOUBLE, Parameter.Type.INTEGER):
        return Parameter(parameter.name, wanted, float(parameter.value))
    spec = _BY_NAME.get(parameter.name)
    if (wanted, parameter.type_) == (Parameter.Type.STRING, Parameter.Type.BOOL) and (
            spec and "off" in spec.choices):
        return Parameter(parameter.name, wanted, "on" if parameter.value else "off")
    return parameter


def declare_all(node: Node, specs: Iterable[Spec]) -> None:
    """Declare parameters. Raises rclpy's ParameterException for a value given of a wrong type."""
    given = overrides_of(node)
    for spec in specs:
        if spec.name in given:  # rclpy takes it from there
            wanted = Parameter.Type.from_parameter_value(spec.default)
            given[spec.name] = as_meant(given[spec.name], wanted)
        node.declare_parameter(spec.name, spec.default, spec.descriptor())


def declare_own(node: Node, specs: Iterable[Spec]) -> dict[str, Any]:
    """Declare the parameters of a node that has no others, and return their values by name.

    Names given at start that it has not are logged. Raises ParameterException, ParameterError.
    """
    specs = tuple(specs)
    declare_all(node, specs)
    for message in unknown_overrides(node, [spec.name for spec in specs]):
        node.get_logger().warning(message)
    return read_all(node, specs)


def read_all(node: Node, specs: Iterable[Spec]) -> dict[str, Any]:
    """Return the present values by name. Raises ParameterError for one that is no choice."""
    values = {}
    for spec in specs:
        values[spec.name] = node.get_parameter(spec.name).value
        spec.check(values[spec.name])
    return values


def unused(values: Mapping[str, Any]) -> list[str]:
    """Return a message for each value of SPECS that is set and of no effect beside the others."""
    return [f"{name} is set, but of no effect without {master}"
            for master, names in _GOES_WITH.items() if values[master] == _BY_NAME[master].default
            for name in names if values[name] != _BY_NAME[name].default]


def runtime_settings(values: Mapping[str, Any]) -> RuntimeSettings:
    """Return the runtime's settings from the values of SPECS. Raises ValueError."""
    return RuntimeSettings(
        fps=values["sample_hz"], window_groups=values["window_groups"], mode=values["mode"],
        window_refresh=values["window_refresh"],
        queue_groups=values["queue_groups"], max_age_s=values["max_age_s"],
        scene_change=values["scene_change"] or None, cut=values["cut"] or None,
        tier2_budget_s=values["tier2_budget_s"] or None,
        reuse=ReuseSettings(values["reuse"], **{
            name: values[f"reuse_{name}"] for name in
            ("threshold", "brightness", "full_above", "refresh_groups", "skip_still")}))


def value_range(values: Mapping[str, Any]) -> tuple[int, int]:
    """Return the values of 16-bit images that become black and white. Raises ParameterError."""
    low, high = values["min_image_value"], values["max_image_value"]
    if low >= high:
        raise ParameterError(f"min_image_value ({low}) must be below max_image_value ({high})")
    return low, high


def overrides_of(node: Node) -> dict[str, Parameter]:
    """Return what was given at start (-p, params file), declared or not, by name.

    rclpy has no public way to see those that are not declared. Where its private one is gone, a
    warning says what that means; declared parameters still get what was given for them.
    """
    given = getattr(node, "_parameter_overrides", None)
    if given is None:
        node.get_logger().warning(
            "this rclpy does not tell what was given at start: unknown parameters are not reported,"
            " questions.<id>.* are taken from the questions file and from changes while the node"
            " runs only, and a number like 2.0 must be given with its point", once=True)
    return {} if given is None else given


def unknown_overrides(node: Node, names: Iterable[str]) -> list[str]:
    """Return a message for each name given at start that is none of ``names`` nor declared."""
    known = [*names]
    messages = []
    for name in overrides_of(node):
        if name in known or node.has_parameter(name):
            continue
        if name.startswith("qos_overrides."):
            messages.append(f"'{name}' is not taken: quality of service is fixed here, but for "
                            "the images' reliability (the parameter reliability)")
            continue
        near = nearest(name, known)
        messages.append(f"unknown parameter '{name}'"
                        + (f", did you mean '{near}'?" if near else ""))
    return messages


def question_names(question_ids: Iterable[str]) -> list[str]:
    """Return the names of the questions' parameters."""
    return [f"{QUESTION_PREFIX}{i}.{field}" for i in question_ids for field in QUESTION_FIELDS]


class ParameterGate:
    """Judges and applies parameter changes of the node.

    ``locked()`` says whether the node is configured (SPECS then cannot change); ``find(id)``
    returns a standing question or raises QuestionError; ``apply(question)`` takes a changed one.
    """

    def __init__(self, node: Node, locked: Callable[[], bool], find: Callable[[str], Question],
                 apply: Callable[[Question], None]) -> None:
        self._node = node
        self._locked, self._find, self._apply = locked, find, apply
        self._own = False  # changes that the node itself is making
        node.add_on_set_parameters_callback(self._judge)
        node.add_post_set_parameters_callback(self._after)

    def resolve(self, question: Question) -> Question:
        """Return the question with the values given for it at start. Raises QuestionError."""
        given = overrides_of(self._node)
        changes = {}
        for field in QUESTION_FIELDS:
            name = f"{QUESTION_PREFIX}{question.id}.{field}"
            if name in given:
                changes[field] = _double(given[name])
        return _replaced(question, changes) if changes else question

    def declare(self, question: Question) -> None:
        """Declare the parameters of a question that begins to stand."""
        self._own = True
        try:
            for spec in QUESTION_SPECS:
                self._node.declare_parameter(
                    f"{QUESTION_PREFIX}{question.id}.{spec.name}", getattr(question, spec.name),
                    spec.descriptor(), ignore_override=True)
        finally:
            self._own = False

    def undeclare(self, question_id: str) -> None:
        """Take back the parameters of a question."""
        for field in QUESTION_FIELDS:
            name = f"{QUESTION_PREFIX}{question_id}.{field}"
            if self._node.has_parameter(name):
                self._node.undeclare_parameter(name)

    def follow(self, question: Question) -> None:
        """Set the parameters to a question that was replaced."""
        self._own = True
        try:
            self._node.set_parameters_atomically([
                Parameter(f"{QUESTION_PREFIX}{question.id}.{field}", Parameter.Type.DOUBLE,
                          getattr(question, field)) for field in QUESTION_FIELDS])
        finally:
            self._own = False

    def _judge(self, parameters: list[Parameter]) -> SetParametersResult:
        if self._own:
            return SetParametersResult(successful=True)
        try:
            for parameter in parameters:
                spec = _BY_NAME.get(parameter.name)
                if spec is None:
                    continue
                spec.check(parameter.value)
                if self._locked():
                    raise ParameterError(f"{spec.name} is read when the node configures: "
                                         "clean it up first, then set it and configure again")
            self._changed(parameters)
        except (ParameterError, QuestionError) as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _after(self, parameters: list[Parameter]) -> None:
        if not self._own:
            for question in self._changed(parameters):
                self._apply(question)

    def _changed(self, parameters: list[Parameter]) -> list[Question]:
        """Return the questions that these parameters make. Raises QuestionError."""
        changes: dict[str, dict[str, float]] = {}
        for parameter in parameters:
            question_id, field = split(parameter.name)
            if field:
                changes.setdefault(question_id, {})[field] = _double(parameter)
        return [_replaced(self._find(question_id), values)
                for question_id, values in changes.items()]


def split(name: str) -> tuple[str, str]:
    """Return (question id, field) of ``questions.<id>.<field>``, or two empty strings."""
    question_id, _, field = name.removeprefix(QUESTION_PREFIX).rpartition(".")
    if name.startswith(QUESTION_PREFIX) and question_id and field in QUESTION_FIELDS:
        return question_id, field
    return "", ""


def _double(parameter: Parameter) -> float:
    parameter = as_meant(parameter, Parameter.Type.DOUBLE)
    if parameter.type_ != Parameter.Type.DOUBLE:
        raise QuestionError(f"{parameter.name} must be a number, not {parameter.value!r}")
    return parameter.value


def _replaced(question: Question, changes: dict[str, float]) -> Question:
    return replace(question, **changes)
