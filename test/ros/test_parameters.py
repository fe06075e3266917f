"""Parameters: descriptors, ranges, and the judging of several at once."""

import dataclasses

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from rclpy.exceptions import ParameterException, ParameterNotDeclaredException
from rclpy.node import Node
from rclpy.parameter import Parameter
from ros_peer import rclpy_context

from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.ros.parameters import (
    NAMES,
    QUESTION_FIELDS,
    QUESTION_SPECS,
    SPECS,
    ParameterError,
    ParameterGate,
    ParameterRules,
    declare_all,
    question_names,
    read_all,
    runtime_settings,
    split,
    unknown_overrides,
    unused,
)
from vlm_decisions.runtime.settings import RuntimeSettings


class Plain(ParameterRules, Node):
    """A node with nothing else."""


@pytest.fixture
def make():
    """Make nodes with overrides."""
    nodes = []
    with rclpy_context() as context:
        def build(**overrides):
            nodes.append(Plain("n", context=context, parameter_overrides=[
                Parameter(name.replace("__", "."), value=value)
                for name, value in overrides.items()]))
            return nodes[-1]

        yield build
        for node in nodes:
            node.destroy_node()


class Gate:
    """A gate over a small book, with what it applied."""

    def __init__(self, node, *, locked=False):
        self.book = QuestionBook([Question("a", "Is it?"), Question("b", "Is it?")])
        self.applied = []
        self.gate = ParameterGate(node, lambda: locked, self.book.get, self.apply)
        for question in list(self.book):
            self.gate.declare(question)
        self.node = node

    def apply(self, question):
        self.applied.append(question.id)
        self.book.replace(question.id, **dataclasses.asdict(question))

    def set(self, **values):
        return self.node.set_parameters_atomically([
            Parameter(f"questions.{name.replace('__', '.')}", value=value)
            for name, value in values.items()])


def test_defaults_are_those_of_the_core(make):
    node = make()
    declare_all(node, SPECS)
    assert runtime_settings(read_all(node, SPECS)) == RuntimeSettings()
    for spec in QUESTION_SPECS:
        assert spec.default == getattr(Question("a", "b"), spec.name)
    assert dataclasses.asdict(Question("a", "b")).keys() >= set(QUESTION_FIELDS)


@pytest.mark.parametrize("spec", [*SPECS, *QUESTION_SPECS], ids=lambda spec: spec.name)
def test_every_parameter_is_described(make, spec):
    node = make()
    node.declare_parameter(spec.name, spec.default, spec.descriptor())
    descriptor = node.describe_parameter(spec.name)
    assert len(descriptor.description) > 15
    spec.check(spec.default)
    if type(spec.default) in (int, float):
        assert spec.low <= spec.default <= spec.high
        low, high = type(spec.default)(spec.low), type(spec.default)(spec.high)
        for outside in (low - 1, high + 1):
            result = node.set_parameters([Parameter(spec.name, value=outside)])[0]
            assert not result.successful and "range" in result.reason.lower()
        for edge in (low, high):
            assert node.set_parameters([Parameter(spec.name, value=edge)])[0].successful
    if isinstance(spec.default, float):
        assert any(unit in descriptor.description for unit in (
            "Hz", "seconds", "probability", "Weight", "distance", "megabytes", "grey levels",
            "Share"))


@pytest.mark.parametrize(("name", "value"), [
    ("mode", "sideways"), ("image_transport", "theora"), ("stamp_source", ""),
    ("reliability", "Reliable")])
def test_choices(make, name, value):
    node = make(**{name: value})
    declare_all(node, SPECS)
    with pytest.raises(ParameterError, match=f"{name} must be one of"):
        read_all(node, SPECS)


@pytest.mark.parametrize(("name", "value"), [
    ("window_groups", 2.0), ("max_age_s", "2"), ("model", 5), ("queue_groups", 0)])
def test_wrong_types_at_start_raise(make, name, value):
    with pytest.raises(ParameterException, match=name):
        declare_all(make(**{name: value}), SPECS)


def test_a_whole_number_is_a_number(make):
    """At start, in a file and when it is set."""
    node = make(max_age_s=2, sample_hz=4)
    declare_all(node, SPECS)
    values = read_all(node, SPECS)
    assert (values["max_age_s"], values["sample_hz"]) == (2.0, 4.0)
    assert isinstance(values["max_age_s"], float)
    result = node.set_parameters([Parameter("max_age_s", value=3)])[0]
    assert result.successful and node.get_parameter("max_age_s").value == 3.0
    result = node.set_parameters([Parameter("max_age_s", value=0)])[0]
    assert not result.successful and "range" in result.reason.lower()


def test_off_and_on_are_words(make):
    """YAML, and so `-p` and `ros2 param set`, reads them as false and true."""
    node = make(learn=True, self_check=False)
    declare_all(node, SPECS)
    values = read_all(node, SPECS)
    assert (values["learn"], values["self_check"]) == ("on", "off")
    assert node.set_parameters([Parameter("reuse", value=False)])[0].successful
    Gate(node)
    refused = node.set_parameters([Parameter("self_check", value=True)])[0]
    assert not refused.successful and "refuse, warn, off, not 'on'" in refused.reason


def test_what_the_node_has_already_is_no_change(make):
    """Whatever was dumped can be loaded: read-only ones too, and those of rclpy."""
    node = make()
    declare_all(node, SPECS)
    Gate(node, locked=True)
    for name in list(node._parameters):
        same = node.get_parameter(name)
        assert node.set_parameters([same])[0].successful, name
    assert node.set_parameters_atomically(list(node._parameters.values())).successful
    other = Parameter("max_age_s", value=9.0)
    results = node.set_parameters([node.get_parameter("autostart"), other])
    assert [result.successful for result in results] == [True, False]
    assert not node.set_parameters_atomically([node.get_parameter("autostart"), other]).successful
    with pytest.raises(ParameterNotDeclaredException):
        node.set_parameters([Parameter("nosuch", value=1)])


def test_unknown_names_are_told_with_the_nearest(make):
    qos = "qos_overrides./image.subscription.reliability"
    node = make(**dict.fromkeys(["model", "use_sim_time", "max_age", "questions.a.enter",
                                 "questions.a.entre", "questions.z.enter", qos, "zzz"], False))
    assert unknown_overrides(node, [*NAMES, *question_names(["a"])]) == [
        "unknown parameter 'max_age', did you mean 'max_age_s'?",
        "unknown parameter 'questions.a.entre', did you mean 'questions.a.enter'?",
        "unknown parameter 'questions.z.enter', did you mean 'questions.a.enter'?",
        f"'{qos}' is not taken: quality of service is fixed here, but for the images' reliability "
        "(the parameter reliability)",
        "unknown parameter 'zzz'"]


def test_split():
    assert split("questions.a.enter") == ("a", "enter")
    for name in ("questions.a.text", "questions.enter", "enter", "questions..enter", "x.a.enter"):
        assert split(name) == ("", "")


def test_what_is_of_no_effect_is_told(make):
    node = make(log_keep=3, reuse_threshold=20.0, clip_after_s=2.0)
    declare_all(node, SPECS)
    assert unused(read_all(node, SPECS)) == [
        "reuse_threshold is set, but of no effect without reuse",
        "log_keep is set, but of no effect without log_file"]
    node = make(log_keep=3, log_file="x.jsonl", learn="on", learn_dir="x")
    declare_all(node, SPECS)
    assert unused(read_all(node, SPECS)) == []


def test_several_are_applied_together_or_not_at_all(make):
    gate = Gate(make())
    assert gate.set(a__enter=0.2, a__exit=0.1, b__rate_hz=8.0).successful
    assert (gate.book.get("a").enter, gate.book.get("b").rate_hz) == (0.2, 8.0)
    assert gate.applied == ["a", "b"]
    for bad in ({"a__exit": 0.3}, {"a__enter": 0.9, "b__enter": 0.3},
                {"a__enter": 0.9, "b__ema": float("nan")}, {"a__ema": 0.0},
                {"a__enter": 0.9, "a__rate_hz": float("inf")}):
        before = list(gate.book)
        result = gate.set(**bad)
        assert not result.successful and result.reason
        assert list(gate.book) == before and gate.applied == ["a", "b"]
        for question in before:
            for field in QUESTION_FIELDS:
                value = gate.node.get_parameter(f"questions.{question.id}.{field}").value
                assert value == getattr(question, field)


def test_locked_parameters_say_so(make):
    node = make()
    declare_all(node, SPECS)
    Gate(node, locked=True)
    result = node.set_parameters([Parameter("max_age_s", value=3.0)])[0]
    assert not result.successful and "clean it up first" in result.reason
    assert not node.set_parameters([Parameter("autostart", value=False)])[0].successful
    assert node.set_parameters([Parameter("questions.a.ema", value=0.5)])[0].successful


def test_unlocked_parameters_are_checked_at_once(make):
    node = make()
    declare_all(node, SPECS)
    Gate(node)
    assert not node.set_parameters([Parameter("mode", value="sideways")])[0].successful
    assert node.set_parameters([Parameter("mode", value="window")])[0].successful


def test_values_given_at_start_are_resolved_as_a_whole(make):
    gate = Gate(make(questions__c__enter=0.9, questions__c__exit=0.8))
    resolved = gate.gate.resolve(Question("c", "Is it?", enter=0.5, exit=0.1))
    assert (resolved.enter, resolved.exit) == (0.9, 0.8)
    other = Question("d", "Is it?")
    assert gate.gate.resolve(other) is other
    whole = Gate(make(questions__c__rate_hz=2)).gate.resolve(Question("c", "Is it?"))
    assert whole.rate_hz == 2.0 and isinstance(whole.rate_hz, float)
    for bad, reason in (({"questions__c__exit": 0.9}, "above exit"),
                        ({"questions__c__rate_hz": "3"}, "must be a number")):
        with pytest.raises(QuestionError, match=reason):
            Gate(make(**bad)).gate.resolve(Question("c", "Is it?"))


def test_follow_and_undeclare(make):
    gate = Gate(make())
    gate.gate.follow(dataclasses.replace(gate.book.get("a"), enter=0.3, exit=0.2, rate_hz=1.0))
    assert gate.node.get_parameter("questions.a.exit").value == 0.2
    assert gate.applied == []  # the node's own change is not applied a second time
    gate.gate.undeclare("a")
    assert not any(name.startswith("questions.a.") for name in gate.node._parameters)
    gate.gate.declare(gate.book.get("a"))
    assert gate.node.get_parameter("questions.a.enter").value == 0.65


def test_an_rclpy_that_does_not_tell_what_was_given(make, capfd):
    """Declared parameters have their values all the same, and what does not work is said once."""
    node = make(sample_hz=4.0, questions__a__enter=0.9, nosuch=1)
    del node._parameter_overrides
    node.declare_parameter("sample_hz", 8.0, ignore_override=True)
    gate = Gate(node).gate
    question = Question("a", "Is it?")
    assert gate.resolve(question) == question and unknown_overrides(node, ["sample_hz"]) == []
    said = capfd.readouterr().err
    assert said.count("this rclpy does not tell what was given at start") == 1
    assert "questions.<id>.*" in said
