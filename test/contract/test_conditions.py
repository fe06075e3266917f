"""Conditions over answers: what they mean, what is refused, and by which line."""

import pytest

from vlm_decisions.conditions import ConditionError, parse_condition
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError

BOOK = """
- {id: person, text: p}
- {id: activity, text: a, kind: choice, options: [typing, on phone, idle]}
- {id: away, text: w}
"""


@pytest.mark.parametrize(("text", "answers", "holds"), [
    ("person", {"person": "yes"}, True),
    ("person", {"person": "no"}, False),
    ("person", {"person": "uncertain"}, None),
    ("person", {}, None),
    ("not person", {"person": "no"}, True),
    ("not person", {"person": "unknown"}, None),
    ("activity == typing", {"activity": "typing"}, True),
    ("activity == 'on phone'", {"activity": "on phone"}, True),
    ("activity != typing", {"activity": "idle"}, True),
    ("activity != typing", {"activity": "unknown"}, None),
    ("person and not (activity == typing or away)",
     {"person": "yes", "activity": "idle", "away": "no"}, True),
    ("person and away", {"person": "no"}, False),  # whatever away is
    ("person or away", {"person": "yes"}, True),
    ("person or away", {"person": "no"}, None),
    ("not camera_dark", {"camera_dark": "no"}, True),
])
def test_what_a_condition_means(text, answers, holds):
    assert parse_condition(text).holds(answers) is holds


@pytest.mark.parametrize("text", [
    "", " ", "person and", "person & away", "1", "f(person)", "person.x.y", "f().person",
    "person < away(1)",
    "1 < people < 3", "2 < people", "people > (1, 2)", "people > 1j",
    "people > person.x", "people > -person", "people is 2",
    "a == b == c", "__import__('os')", "[person]", "lambda: person", "person if away else person",
    "(" * 400 + "person" + ")" * 400, "not " * 124 + "person" + "x" * 500, "person\x00", 7,
])
def test_what_is_no_condition_is_refused(text):
    with pytest.raises(ConditionError):
        parse_condition(text)


def test_nothing_is_executed():
    with pytest.raises(ConditionError, match="may hold question ids"):
        parse_condition("exit()")


@pytest.mark.parametrize(("keys", "words"), [
    ("when: nobody", "file:5: question 'q': when there is no question 'nobody' .there are: person"),
    ("when: activity", "file:5: .*'activity' is a choice: compare it, as in activity == .typing."),
    ("when: activity == flying", "file:5: .*'activity' never answers 'flying' .*typing, on phone"),
    ("when: person == maybe", "file:5: .*never answers 'maybe' .*yes, no"),
    ("needs: nobody", "file:5: question 'q': needs there is no question 'nobody'"),
    ("when: q", "file:5: question 'q': when names itself"),
    ("when: person or", "file:5: .*when cannot be read, it ends too early"),
    ("ask: sometimes", "ask must be one of always, on_change"),
    ("min_evidence_s: -1", "min_evidence_s must be from 0"),
    ("refresh_s: 0", "refresh_s must be above 0"),
])
def test_a_wrong_condition_names_its_line(keys, words):
    with pytest.raises(QuestionError, match=words):
        QuestionBook.loads(f"{BOOK}- {{id: q, text: q, {keys}}}\n", "file")


SCORES = """
- {id: crowd, text: c, kind: score, options: [low, medium, high]}
- {id: people, text: p, kind: score, options: ["0", "1", "2", "5"]}
- {id: on_desk, text: d, kind: any_of, options: [cup, pen]}
"""


@pytest.mark.parametrize(("text", "answers", "holds"), [
    ("crowd >= medium", {"crowd": "medium"}, True),
    ("crowd > medium", {"crowd": "medium"}, False),
    ("crowd < high", {"crowd": "low"}, True),
    ("crowd <= 'medium'", {"crowd": "high"}, False),
    ("not crowd >= medium", {"crowd": "low"}, True),
    ("people > 2", {"people": "5"}, True),  # by value, not as texts or places
    ("people > 2.5", {"people": "2"}, False),
    ("people >= -1", {"people": "0"}, True),
    ("people < '2'", {"people": "1"}, True),
    ("people == 2 or people in (0, 5)", {"people": "5"}, True),
    ("people != 2", {"people": "2"}, False),
    ("crowd > low and people > 2", {"crowd": "high", "people": "unknown"}, None),
    ("crowd > low", {"crowd": "uncertain"}, None),
    ("crowd > low", {}, None),
])
def test_levels_of_a_score_are_compared_by_their_order(text, answers, holds):
    book = {question.id: question for question in QuestionBook.loads(SCORES)}
    condition = parse_condition(text)
    condition.check(book)
    assert condition.holds(answers, book) is holds


def test_an_order_is_open_where_the_levels_are_not_known():
    assert parse_condition("crowd > low").holds({"crowd": "high"}) is None
    book = {question.id: question for question in QuestionBook.loads(SCORES)}
    assert parse_condition("crowd > low").holds({"crowd": "full"}, book) is None
    of_view = parse_condition("front.crowd > low")
    assert of_view.holds({"crowd": "high"}, book) is None
    assert of_view.holds({"front.crowd": "high"}, book) is True


@pytest.mark.parametrize(("condition", "words"), [
    ("person > 2", "'person' is a yes/no question: only the levels of a score have an order"),
    ("activity >= typing", "'activity' is a choice: only the levels of a score have an order"),
    ("on_desk[cup] > 1", "'on_desk.cup.' is an any_of: only the levels of a score have an order"),
    ("camera_dark < 1", "'camera_dark' is of the camera's health: only the levels"),
    ("crowd > full", "'crowd' never answers 'full' .its levels: low, medium, high"),
    ("crowd > 1", "'crowd' has no numbers for levels: compare it with one of low, medium, high"),
    ("people > 1e999", "'people' is compared with a number that is not finite"),
    ("people == 3", "'people' never answers '3' .its answers: 0, 1, 2, 5"),
    ("2 < people", "the question comes first"),
    ("nobody > 2", "there is no question 'nobody'"),
])
def test_an_order_that_is_none_names_its_line(condition, words):
    text = f"{BOOK}{SCORES}- {{id: q, text: q, when: '{condition}'}}\n"
    with pytest.raises(QuestionError, match=f"file:9: question 'q': when .*{words}"):
        QuestionBook.loads(text, "file")


def test_conditions_that_go_in_a_circle_name_it_and_the_line():
    text = ("- {id: a, text: a}\n- {id: b, text: b, needs: d}\n- {id: c, text: c, when: a and b}\n"
            "- id: d\n  text: d\n  when: not c\n")
    with pytest.raises(QuestionError, match=r"file:2: question 'b': needs goes in a circle: "
                                            "b -> d -> c -> b"):
        QuestionBook.loads(text, "file")


def test_a_question_may_name_a_later_one_and_a_saved_book_reads_back(tmp_path):
    book = QuestionBook.loads("- {id: a, text: a, when: b, needs: b, ask: on_change, change: 0.1}\n"
                              "- {id: b, text: b, min_evidence_s: 2}\n")
    assert book.get("a").depends_on == ("b",)
    book.save(tmp_path / "q.yaml")
    assert tuple(QuestionBook.load(tmp_path / "q.yaml")) == tuple(book)


def test_what_others_depend_on_stays():
    book = QuestionBook.loads(BOOK + "- {id: q, text: q, when: activity == idle, needs: person}\n")
    with pytest.raises(QuestionError, match="'person': it is in a condition of q"):
        book.remove("person")
    with pytest.raises(QuestionError, match="question 'q': when 'activity' never answers 'idle'"):
        book.replace("activity", options=("typing", "on phone"))
    with pytest.raises(QuestionError, match="circle: person -> q -> person"):
        book.replace("person", needs="q")
    with pytest.raises(QuestionError, match="there is no question 'none'"):
        book.add(Question("r", "r", when="none"))
    assert len(book) == 4 and book.get("person").needs is None
    book.remove("q")
    book.remove("person")


@pytest.mark.parametrize("name", ["class", "is", "None", "True", "lambda", "match", "yield"])
def test_words_of_python_are_names_like_others(name):
    book = QuestionBook.loads(
        f"- {{id: '{name}', text: a}}\n"
        f"- {{id: pick, text: b, kind: choice, options: ['{name}', x]}}\n"
        f"- {{id: q, text: q, when: '{name} and not (pick == {name})'}}\n")
    condition = parse_condition(book.get("q").when)
    assert condition.names == (name, "pick")
    assert condition.holds({name: "yes", "pick": "x"}) is True
    assert condition.holds({name: "yes", "pick": name}) is False
    assert parse_condition(f'a["{name}"] or b.{name} or a[{name}]').names == (
        f"a[{name}]", f"b.{name}")


@pytest.mark.parametrize(
    ("text", "column"),
    [("person # and cup", 8), ("class#", 6), ("person \\\nand cup", 8)],
)
def test_nothing_of_a_condition_is_passed_over(text, column):
    with pytest.raises(ConditionError, match=f"cannot be read at column {column}"):
        parse_condition(text)


def test_in_quotes_every_character_stands():
    assert parse_condition(r"""a == "is # 1" or b == 'c\\d'""").compared == (
        ("a", "is # 1"), ("b", r"c\d"))


@pytest.mark.parametrize("text", ["person and", "not", "person and (", "a not in"])
def test_a_condition_that_is_not_complete_says_so(text):
    with pytest.raises(ConditionError, match="cannot be read, it ends too early|column"):
        parse_condition(text)


def test_one_answer_in_brackets_is_one_of_several():
    for text in ("activity in (idle)", 'activity in ("idle")', "activity in (idle,)"):
        assert parse_condition(text).compared == (("activity", "idle"),)
        assert parse_condition(text).holds({"activity": "idle"}) is True
    assert parse_condition("activity not in (idle)").holds({"activity": "idle"}) is False


def test_the_column_of_a_fault_is_that_of_the_text():
    with pytest.raises(ConditionError, match="column 8, answers are compared by =="):
        parse_condition("person = yes")
    with pytest.raises(ConditionError, match="column 22: person and class and"):
        parse_condition("person and class and )")
    with pytest.raises(ConditionError, match="the question comes first"):
        parse_condition("person is yes")


VIEWS = "views: {front: {image: /front}, back: {image: /back}}\nquestions:\n"


def test_a_name_may_say_the_view_whose_answer_counts():
    condition = parse_condition('front.person and not back.person or back.on_desk["toy car"]')
    assert condition.names == ("front.person", "back.person", "back.on_desk[toy car]")
    assert condition.questions == ("person", "on_desk") and condition.views == ("front", "back")
    said = {"front.person": "yes", "back.person": "no", "back.on_desk[toy car]": "no"}
    assert condition.holds(said) is True
    assert condition.holds(said | {"back.person": "yes"}) is False
    assert condition.holds({"person": "yes"}) is None
    assert parse_condition("front.activity in (typing, idle)").holds({"front.activity": "idle"})


@pytest.mark.parametrize("condition, words", [
    ("left.person", "there is no view 'left' \\(there are: front, back\\)"),
    ("front.door", "'door' is not asked of view 'front' \\(it is of: back\\)"),
    ("front.nobody", "there is no question 'nobody'"),
    ("a.b.person", "may hold question ids"),
    ("front/person", "may hold question ids.*of a view's answer the name is view.question"),
    ("front.person == a.b", "compares a question with one of its answers"),
])
def test_a_view_that_cannot_be_meant_is_refused_with_its_line(condition, words):
    text = (f"{VIEWS}- {{id: person, text: p}}\n- {{id: door, text: d, view: back}}\n"
            f"- {{id: q, text: q, when: {condition}}}\n")
    with pytest.raises(QuestionError, match=f"file:5: question 'q': when {words}"):
        QuestionBook.loads(text, "file")


def test_without_named_views_none_can_be_said():
    with pytest.raises(QuestionError, match="no view 'front' \\(there are: one, without a name"):
        QuestionBook.loads("- {id: a, text: a}\n- {id: b, text: b, when: front.a}\n")


def test_a_view_that_a_condition_names_stays():
    book = QuestionBook.loads(VIEWS + "- {id: a, text: a}\n- {id: b, text: b, implies: back.a}\n")
    with pytest.raises(QuestionError, match="view 'back': it is in a condition of b"):
        book.remove_view("back")
    book.replace("b", implies=())
    assert book.remove_view("back").name == "back"
