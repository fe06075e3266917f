"""The SROS 2 policy: valid, and exactly what the node has on the graph."""

import fnmatch
import xml.etree.ElementTree as ElementTree

import pytest

from vlm_decisions.files import resources

POLICY = resources.share_file("config", "sros2", "policy.xml")
KINDS = {"topics": ("topic", {"publish", "subscribe"}),
         "services": ("service", {"reply", "request"}),
         "actions": ("action", {"call", "execute"})}
PUBLISH, SUBSCRIBE, REPLY = ("topics", "publish"), ("topics", "subscribe"), ("services", "reply")

#: What sros2 makes of an action that is executed.
PARTS = {("actions", "execute"): [
    *((REPLY, f"/_action/{part}") for part in ("send_goal", "get_result", "cancel_goal")),
    *((PUBLISH, f"/_action/{part}") for part in ("feedback", "status"))]}


def profile():
    """Return the one profile of the policy, after the rules of sros2's policy.xsd (0.2.0)."""
    root = ElementTree.parse(POLICY).getroot()
    assert (root.tag, root.attrib) == ("policy", {"version": "0.2.0"})
    (enclaves,) = root
    (enclave,) = enclaves
    assert (enclaves.tag, enclave.tag) == ("enclaves", "enclave")
    assert enclave.attrib == {"path": "/vlm_decisions/decision_node"}
    (profiles,) = enclave
    (found,) = profiles
    assert (profiles.tag, found.tag) == ("profiles", "profile")
    assert found.attrib == {"ns": "/", "node": "decision_node"}
    return found


def allowed():
    """Return the full names allowed, by kind and direction."""
    names = {}
    for rules in profile():
        child, directions = KINDS[rules.tag]
        assert rules.attrib and set(rules.attrib) <= directions
        assert set(rules.attrib.values()) <= {"ALLOW", "DENY"} and len(rules) > 0
        for rule in rules:
            assert rule.tag == child and not rule.attrib and rule.text == rule.text.strip()
            name = rule.text
            if name.startswith("~/"):
                name = f"/decision_node{name[1:]}"
            elif not name.startswith("/"):
                name = f"/{name}"
            for direction, value in rules.attrib.items():
                assert value == "ALLOW"
                where = rules.tag, direction
                for found, part in PARTS.get(where, [(where, "")]):
                    names.setdefault(found, []).append(name + part)
    return names


def test_the_policy_is_well_formed():
    names = allowed()
    assert set(names) == {PUBLISH, SUBSCRIBE, REPLY}  # the node calls nobody
    assert all(len(set(found)) == len(found) for found in names.values())


def test_it_covers_the_node_and_nothing_else(tmp_path):
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from ros_peer import QUESTIONS, system
    from waiting import wait_for

    questions = "questions:" + QUESTIONS.replace("\n-", "\n  -") + """
events:
  - id: visit
    states: [away, here]
    transitions: [{from: away, to: here, when: {person: yes}}]
"""
    found = {PUBLISH: set(), SUBSCRIBE: set(), REPLY: set()}
    for parameters in ({}, {"use_sim_time": True, "image_transport": "compressed"}):
        with system(tmp_path, questions=questions, **parameters) as s:
            wait_for(lambda s=s: s.peer.state() == "active")
            s.peer.status("image")  # whatever it offers, it has made by now
            looks = {PUBLISH: s.node.get_publisher_names_and_types_by_node,
                     SUBSCRIBE: s.node.get_subscriber_names_and_types_by_node,
                     REPLY: s.node.get_service_names_and_types_by_node}

            def seen(s=s, looks=looks):
                """Take what is on the graph, which follows; whether all that is made is there."""
                for rule, look in looks.items():
                    found[rule] |= {name for name, _ in look("decision_node", "/")}
                return ({one.topic_name for one in s.node.publishers} <= found[PUBLISH]
                        and {one.topic_name for one in s.node.subscriptions} <= found[SUBSCRIBE])

            wait_for(seen)
            assert s.node.get_client_names_and_types_by_node("decision_node", "/") == []
    for rule, expressions in allowed().items():
        for name in found[rule]:
            assert any(fnmatch.fnmatchcase(name, e) for e in expressions), (rule, name)
        for expression in expressions:
            assert any(fnmatch.fnmatchcase(n, expression) for n in found[rule]), (rule, expression)
    assert "/decision_node/decisions/person" in found[PUBLISH]
    # The check itself: a name that is not allowed is not.
    assert not any(fnmatch.fnmatchcase("/cmd_vel", e) for e in allowed()[PUBLISH])
