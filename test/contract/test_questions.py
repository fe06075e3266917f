"""Question validation, and the book's YAML."""

import os
import stat

import pytest
import yaml

from vlm_decisions.question_book import MAX_QUESTIONS, QuestionBook
from vlm_decisions.questions import Question, QuestionError

DESK = """\
questions:
- id: coffee
  text: Is the person drinking from a cup or mug?
  enter: 0.55
  ema: 0.7
- id: activity
  kind: choice
  text: What is the person mainly doing?
  options: [typing, drinking, on phone, idle]
  rate_hz: 1
  tier: 2
"""


UNUSED = [
    ("change: 0.01", "change goes with ask: on_change"),
    ("refresh_s: 9", "refresh_s goes with ask: on_change"),
    ("ask: always, change: 0.01", "change goes with ask: on_change"),
    ("shallow_depth: 3", "shallow_depth goes with depth: auto"),
    ("depth: 4, shallow_margin: 1", "shallow_margin goes with depth: auto"),
    ("shallow_scale: 2", "shallow_scale goes with depth: auto"),
    ("shallow_bias: 2", "shallow_bias goes with depth: auto"),
    ("switch_hz: 1", "switch_hz goes with smoothing: filter"),
    ("smoothing: filter, ema: 0.5", "ema goes with smoothing: ema; smoothing: filter has switch_"),
    ("tier: heads, ask: on_change", "ask is for the language model, which tier heads never asks"),
    ("tier: 1, depth: 3", "depth is for the language model"),
    ("tier: heads, scale: 2", "scale is for the language model"),
    ("tier: heads, bias: 2", "bias is for the language model"),
    ("tier: heads, unsure: window", "unsure is for the language model"),
]


@pytest.mark.parametrize(("keys", "message"), UNUSED)
def test_a_field_of_no_effect_is_refused_at_every_door(keys, message):
    """In a file, when a question is added, and when one that stands is changed."""
    text = f"- {{id: a, text: A}}\n- {{id: b, text: B, {keys}}}\n"
    with pytest.raises(QuestionError) as caught:
        QuestionBook.loads(text, "q")
    assert str(caught.value).startswith(f"q:2: question 'b': {message}")
    fields = yaml.safe_load(text)[1]
    book = QuestionBook.loads("- {id: b, text: B}")
    with pytest.raises(QuestionError, match=message):
        QuestionBook().add(Question(**fields))
    with pytest.raises(QuestionError, match=message):
        book.replace("b", **fields)
    assert book.get("b") == Question("b", "B")


def test_defaults_count_where_they_have_an_effect():
    text = ("defaults: {ask: on_change, change: 0.02, depth: auto, shallow_margin: 1, ema: 0.5}\n"
            "questions:\n- {id: a, text: A}\n- {id: b, text: B, tier: heads}\n"
            "- {id: c, text: C, ask: always, smoothing: filter, depth: 3}\n")
    a, b, c = QuestionBook.loads(text)
    assert (a.ask, a.change, a.depth, a.shallow_margin, a.ema) == (
        "on_change", 0.02, "auto", 1.0, 0.5)
    assert b == Question("b", "B", tier="heads", ema=0.5)
    assert c == Question("c", "C", smoothing="filter", depth=3)
    with pytest.raises(QuestionError, match="q:2: the default 'change' is of no effect on any "
                                            "question: it goes with ask: on_change"):
        QuestionBook.loads("defaults:\n  change: 0.02\nquestions: [{id: a, text: A}]", "q")


def test_reads_a_list_and_a_mapping_alike():
    book = QuestionBook.loads(DESK)
    assert [question.id for question in book] == ["coffee", "activity"]
    activity = book.get("activity")
    assert activity.options == ("typing", "drinking", "on phone", "idle")
    assert activity.tier == "vlm"
    assert activity.rate_hz == 1.0
    assert isinstance(activity.rate_hz, float)
    listed = QuestionBook.loads(yaml.safe_dump(yaml.safe_load(DESK)["questions"]))
    assert list(listed) == list(book)


@pytest.mark.parametrize("text", ["", "[]", "questions:", "# nothing\n"])
def test_an_empty_file_is_an_empty_book(text):
    assert len(QuestionBook.loads(text)) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id": "1st"}, "ROS name"),
        ({"id": "a/b"}, "ROS name"),
        ({"id": "a__b"}, "ROS name"),
        ({"id": "_a"}, "ROS name"),
        ({"id": "a_"}, "ROS name"),
        ({"id": "é"}, "ROS name"),
        ({"id": "a\n"}, "ROS name"),
        ({"id": ""}, "ROS name"),
        ({"id": "x" * 65}, "ROS name"),
        ({"id": True}, "must be text"),
        ({"id": "camera_dark"}, "camera's health"),
        ({"text": "  "}, "text is empty"),
        ({"text": 3}, "text must be text"),
        ({"text": "x" * 501}, "limit is 500"),
        ({"text": "a\x00b"}, "control characters: U+0000, the 2. character"),
        ({"text": "Is it\x9b31m?"}, "control characters: U+009B, the 6. character"),
        ({"text": "Is it\x7f?"}, "control characters: U+007F"),
        ({"text": "\ud800"}, "not valid Unicode"),
        ({"text": "\u200b\u2060"}, "text is empty: it holds only invisible characters, "
                                   "U+200B ZERO WIDTH SPACE, U+2060 WORD JOINER"),
        ({"text": "\u3164"}, "only invisible"),
        ({"text": ["Is it?"]}, "quote the text"),
        ({"text": "Is the door \u202enepo?"}, "direction of writing"),
        ({"kind": "choice", "options": ("a", "\u2067b")}, "direction of writing"),
        ({"rate_hz": 10 ** 400}, "at most 100"),
        ({"kind": "open"}, "kind must be one of"),
        ({"options": ("a", "b")}, "belong to kind: choice"),
        ({"kind": "choice"}, "2 to 26"),
        ({"kind": "choice", "options": ("a",)}, "2 to 26"),
        ({"kind": "choice", "options": ("a",) * 27}, "2 to 26"),
        ({"kind": "choice", "options": ("a", "A ")}, "twice"),
        ({"kind": "choice", "options": ("a", "")}, "question 'q': options: number 2 is empty"),
        ({"kind": "choice", "options": ("caf\u00e9", "cafe\u0301")}, "twice"),
        ({"kind": "choice", "options": ("cup", "cu\u200bp")}, "twice"),
        ({"kind": "choice", "options": ("a", "\u200d")}, "number 2 is empty: it holds only"),
        ({"kind": "choice", "options": ("a\x07", "b")}, "number 1 holds control"),
        ({"kind": "choice", "options": ("a", "unknown")}, "answer of its own"),
        ({"kind": "choice", "options": ("a", "unk\u00adnown")}, "answer of its own"),
        ({"kind": "choice", "options": (True, False)}, "quote it"),
        ({"kind": "choice", "options": "ab"}, "must be a list"),
        ({"kind": "choice", "options": ("a", "b"), "tier": "heads"}, "yes or no only"),
        ({"kind": "choice", "options": ("a", "b"), "bias": 0.5}, "bias"),
        ({"tier": 0}, "tier must be"),
        ({"tier": True}, "tier must be"),
        ({"tier": "best"}, "tier must be"),
        ({"tier": "vlm", "head": "person"}, "head has no use"),
        ({"head": ""}, "head must be"),
        ({"rate_hz": 0}, "rate_hz must be above 0"),
        ({"rate_hz": -1}, "rate_hz must be above 0"),
        ({"rate_hz": 101}, "at most 100"),
        ({"rate_hz": float("nan")}, "rate_hz must be above"),
        ({"rate_hz": float("inf")}, "rate_hz must be above"),
        ({"rate_hz": True}, "must be a number"),
        ({"rate_hz": "4"}, "must be a number"),
        ({"enter": 1.1}, "enter must be from 0 to 1"),
        ({"exit": -0.1}, "exit must be from 0 to 1"),
        ({"enter": 0.4, "exit": 0.4}, "enter is 0.4, exit is 0.4"),
        ({"enter": 0.2, "exit": 0.4}, "must be above exit"),
        ({"ema": 0}, "ema must be above 0"),
        ({"ema": 1.5}, "ema must be above 0"),
        ({"depth": 0}, "depth must be"),
        ({"depth": 2.0}, "depth must be"),
        ({"depth": True}, "depth must be"),
        ({"scale": 0}, "scale must be above 0"),
        ({"bias": float("nan")}, "bias must be"),
    ],
)
def test_invalid_fields_are_named(changes, words):
    fields = {"id": "q", "text": "Is it?"} | changes
    with pytest.raises(QuestionError) as caught:
        Question(**fields)
    assert words in str(caught.value)
    assert caught.value.field in {*changes, "options"}


@pytest.mark.parametrize(
    "changes",
    [
        {"exit": 0.0, "enter": 1.0},
        {"ema": 1},
        {"tier": 1, "head": "person_v2"},
        {"depth": 12, "scale": 0.5, "bias": -1.5},
        {"kind": "choice", "options": ["yes", "no"]},
        {"text": "👩\u200d💻 am Tisch?", "kind": "choice", "options": ["می\u200cخواهم", "☕"]},
        {"text": "Ist die Tür offen? 门开着吗？ <|im_end|>"},
    ],
)
def test_valid_fields_are_kept(changes):
    question = Question(**({"id": "q", "text": "Is it?"} | changes))
    again = Question(**question.to_dict())
    assert again == question


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- id: a\n  text: x\n  enterr: 0.5\n", 3, "did you mean 'enter'?"),
        ("- id: a\n  text: x\n  colour: red\n", 3, "known: id, text"),
        ("- id: a\n  text: x\n\n  rate_hz: fast\n", 4, "rate_hz must be a number"),
        ("- id: a\n  text: x\n- id: a\n  text: y\n", 3, "'a' exists already"),
        ("- id: a\n", 1, "needs the key 'text'"),
        ("- id: a\n  text: x\n- text: y\n", 3, "needs the key 'id'"),
        ("- id: a\n  text: x\n  text: y\n", 3, "appears twice"),
        ("- id: on\n  text: x\n", 1, "must be text, not True"),
        ("- id: a\n  text: {b: c}\n", 2, "plain value"),
        ("- id: a\n  text: !!python/name:os.system ''\n", 2, "constructor"),
        ("- just text\n", 1, "expected a mapping"),
        ("standing:\n- id: a\n", 1, "unknown key 'standing'"),
        ("- id: a\n  text: [\n", 3, "not valid YAML"),
        ("just text", 1, "must hold a list"),
    ],
)
def test_file_errors_name_the_line(text, line, words):
    with pytest.raises(QuestionError) as caught:
        QuestionBook.loads(text, source="my.yaml")
    assert str(caught.value).startswith(f"my.yaml:{line}:")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("- id: a\n  text: Is shelf #3 empty?\n", 2, "reads only 'Is shelf'"),
        ("- id: a\n  text: Is the\n    shelf #3 empty?\n", 3, "reads only 'Is the shelf'"),
        ("- id: a\n  text: #3, is it empty?\n", 2, "takes '#3, is it empty?' for a comment"),
        ("- id: a\n  text: Is it on?  # the left one\n", 2, "on a line of its own"),
        ("- id: shelf #3\n  text: q\n", 1, "reads only 'shelf'"),
        ("- id: a\n  text: q\n  kind: choice\n  options:\n  - b\n  - c #4\n", 6, "only 'c'"),
        ("- {id: lamp, text: Is the lamp on?, kind: choice}\n", 1, "not valid YAML"),
        ("- id: b\n  text: q\n- {id: a, text: Is shelf #3 empty?}\n", 4, "begun on line 3"),
        ("- {id: a, text: A cup, or a mug}\n", 1, "a comma ends an unquoted text"),
        ("- id: a\n  text: Is it: on?\n", 2, "not valid YAML"),
        ("- id: a\n  text: @home?\n", 2, "not valid YAML"),
        ("- id: a\n  text: ! Is it on?\n", 2, "a tag"),
        ("- id: a\n  text: &left Is it on?\n", 2, "an anchor"),
        ("- id: a\n  text: {is it on}\n", 2, "plain value"),
        ("- id: a\n  text: Is shelf\n    #3 empty?\n", 2, "reads only 'Is shelf'"),
        ("- id: a\n  text: q\n  kind: choice\n  options:\n  - b\n  - c\n    #4\n", 6, "only 'c'"),
        ("- {id: a, text: q, kind: choice, options: [12:30, 0.5]}\n", 1, "not 750, as YAML reads"),
        ("- {id: a, text: q, kind: choice, options: [b,\n 0.5]}\n", 2, "not 0.5"),
        ("- {id: a, text: q, kind: choice, options: [on, off]}\n", 1, "not True"),
        ("- id: a\n  text: 2026-11-30\n", 2, "text must be text"),
        ("- id: a\n  text: 2026-13-30\n", 2, "month must be"),
        ("- id: a\n  text: ~\n", 2, "not None"),
    ],
)
def test_texts_that_yaml_would_change_are_refused(text, line, words):
    with pytest.raises(QuestionError) as caught:
        QuestionBook.loads(text, source="my.yaml")
    assert str(caught.value).startswith(f"my.yaml:{line}:"), caught.value
    assert words in str(caught.value)
    assert "quote the text" in str(caught.value)


def test_texts_in_quotes_and_comments_elsewhere_are_as_they_were():
    book = QuestionBook.loads(
        "# all\n- id: a  # the first\n  text: \"Is shelf #3 empty?\"  # quoted\n  kind: choice\n"
        "  options: ['12:30', \"0.5\", 'on #2']\n  rate_hz: 2  # Hz\n"
        "- id: b\n  text: |  # a block\n    Is shelf #3 empty?\n- {id: c, text: Is it#3}  # three\n"
    )
    assert [q.text for q in book] == ["Is shelf #3 empty?", "Is shelf #3 empty?", "Is it#3"]
    assert book.get("a").options == ("12:30", "0.5", "on #2")


def test_lines_that_are_commented_out_are_no_part_of_the_text_above():
    book = QuestionBook.loads(
        "- id: a\n  text: Is it on?\n  #rate_hz: 2\n#- id: b\n  kind: choice\n"
        "  options:\n  - red\n  #- blue\n  - green\n      # not yellow\n"
    )
    assert book.get("a").text == "Is it on?" and book.get("a").options == ("red", "green")


def test_a_text_is_kept_in_its_composed_form():
    question = Question("a", "Is the cafe\u0301 open?", "choice", ("cafe\u0301 ", "bar"))
    assert question.text == "Is the caf\u00e9 open?" and question.options == ("caf\u00e9", "bar")


@pytest.mark.slow
def test_nested_and_repeated_yaml_is_refused_quickly():
    bomb = "a: &a [x, x]\n" + "".join(f"b{i}: &b{i} [*a, *a]\n" for i in range(9))
    with pytest.raises(QuestionError):
        QuestionBook.loads(bomb)
    with pytest.raises(QuestionError, match="not valid YAML"):
        QuestionBook.loads("[" * 100_000)


def test_missing_and_unreadable_files_are_named(tmp_path):
    with pytest.raises(QuestionError, match="none.yaml: No such file"):
        QuestionBook.load(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes("- {id: a, text: Tür}".encode("latin-1"))
    with pytest.raises(QuestionError, match="not UTF-8"):
        QuestionBook.load(tmp_path / "latin.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(QuestionError, match="larger than"):
        QuestionBook.load(tmp_path / "huge.yaml")


def test_saving_and_loading_gives_the_same_book(tmp_path):
    book = QuestionBook.loads(DESK)
    book.add(Question("odd", "Is 'yes' or \"no\" — on: off?", enter=0.9, tier="heads", head="h"))
    path = tmp_path / "book.yaml"
    book.save(path)
    assert list(QuestionBook.load(path)) == list(book)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_saving_replaces_at_once_and_keeps_links_and_modes(tmp_path):
    path, link = tmp_path / "book.yaml", tmp_path / "link.yaml"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    QuestionBook.loads(DESK).save(link)
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(QuestionBook.load(path)) == 2
    assert sorted(os.listdir(tmp_path)) == ["book.yaml", "link.yaml"]


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "book.yaml"
    path.write_text("old")

    def no_space(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(QuestionError, match="No space left"):
        QuestionBook.loads(DESK).save(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["book.yaml"]
    with pytest.raises(QuestionError, match="cannot save questions"):
        QuestionBook.loads(DESK).save(tmp_path / "none" / "book.yaml")


def test_add_get_remove():
    book = QuestionBook.loads(DESK)
    with pytest.raises(QuestionError, match="'coffee' exists already"):
        book.add(Question("coffee", "again"))
    assert book.remove("coffee").id == "coffee"
    assert "coffee" not in book
    for call in (book.get, book.remove, book.replace):
        with pytest.raises(QuestionError, match="no question 'coffee'"):
            call("coffee")
    for index in range(MAX_QUESTIONS - 1):
        book.add(Question(f"q{index}", "x"))
    with pytest.raises(QuestionError, match="full"):
        book.add(Question("more", "x"))


def test_replace_validates_together_and_changes_all_or_nothing():
    book = QuestionBook.loads(DESK)
    before = book.get("coffee")
    for changes in (
        {"enter": 0.2, "rate_hz": 2.0},
        {"rate_hz": float("nan")},
        {"colour": "red"},
        {"id": "tea"},
    ):
        with pytest.raises(QuestionError):
            book.replace("coffee", **changes)
        assert book.get("coffee") is before
    # Neither of these two is valid without the other.
    after = book.replace("coffee", enter=0.3, exit=0.1)
    assert (after.enter, after.exit) == (0.3, 0.1)
    assert [question.id for question in book] == ["coffee", "activity"]


def test_copy_is_independent():
    book = QuestionBook.loads(DESK)
    copy = book.copy()
    copy.remove("coffee")
    assert "coffee" in book


def test_asks_the_same_ignores_rates_and_thresholds():
    question = Question("a", "x")
    assert question.asks_the_same(Question("a", "x", rate_hz=1.0, enter=0.9, tier="vlm"))
    assert not question.asks_the_same(Question("a", "y"))
    assert not question.asks_the_same(Question("b", "x"))


DEFAULTS = """\
defaults:
  ask: on_change
  ema: 0.5
questions:
  - {id: a, text: a}
  - {id: b, text: b, ask: always}
events: []
"""


def test_defaults_of_a_file_hold_where_a_question_says_nothing():
    a, b = QuestionBook.loads(DEFAULTS)
    assert (a.ask, a.ema) == ("on_change", 0.5)
    assert (b.ask, b.ema) == ("always", 0.5)


def test_a_file_with_defaults_is_saved_with_their_values(tmp_path):
    book = QuestionBook.loads(DEFAULTS)
    book.save(tmp_path / "q.yaml")
    assert list(QuestionBook.load(tmp_path / "q.yaml")) == list(book)


@pytest.mark.parametrize(("text", "message"), [
    (DEFAULTS.replace("on_change", "often"), "q:2: question 'a': ask must be one of"),
    (DEFAULTS.replace("0.5", "7"), "q:3: question 'a': ema must be above 0"),
    (DEFAULTS.replace("ema: 0.5", "needs: a"), "q:3: question 'a': needs names itself"),
    (DEFAULTS.replace("ema: 0.5", "needs: c"), "q:3: question 'a': needs there is no question"),
    (DEFAULTS.replace("ema: 0.5", "scale: 2"), "q:3: unknown key 'scale'"),
    (DEFAULTS.replace("ema: 0.5", "emma: 0.5"), "q:3: unknown key 'emma', did you mean 'ema'"),
    ("defaults: [1]\nquestions: []\n", "q:1: expected a mapping"),
    ("default: {}\n", "q:1: unknown key 'default'.*and 'defaults' with keys of its own"),
])
def test_wrong_defaults_are_named_with_their_line(text, message):
    with pytest.raises(QuestionError, match=message):
        QuestionBook.loads(text, "q")


@pytest.mark.parametrize("word", ["and", "or", "not", "in"])
def test_an_id_that_no_condition_could_name_is_refused(word):
    with pytest.raises(QuestionError, match="words of conditions"):
        Question(word, "Q?")


def test_heads_never_look_again():
    with pytest.raises(QuestionError, match="tier heads never asks"):
        QuestionBook().add(Question("cup", "Q?", tier="heads", unsure="window"))
    assert Question("cup", "Q?", unsure="window").unsure == "window"
