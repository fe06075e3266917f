"""Views: what is valid, what each error names, and what is cut out of a picture."""

from dataclasses import replace

import numpy as np
import pytest

from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.views import OUTSIDE, View, ViewError, load_views

FILE = """
views:
  front: {image: /front/image_raw}
  door: {image: /front/image_raw, region: [0.62, 0.10, 0.95, 0.80], priority: 2}
  long:
    image: /front/image_raw
    sample_hz: 1.0
    window_groups: 16
questions:
  - {id: door_open, view: door, text: Is the door open}
  - {id: person, view: all, text: Is a person present}
  - {id: still, text: Is it still}
"""


def test_views_are_read_with_the_questions():
    book = QuestionBook.loads(FILE)
    assert [view.name for view in book.views] == ["front", "door", "long"]
    assert book.view("door") == View("door", "/front/image_raw", None, (0.62, 0.10, 0.95, 0.80),
                                     priority=2)
    assert (book.view("long").sample_hz, book.view("long").window_groups) == (1.0, 16)
    asked = {q.id: [view.name for view in book.views_of(q)] for q in book}
    assert asked == {"door_open": ["door"], "person": ["front", "door", "long"],
                     "still": ["front", "door", "long"]}


def test_without_views_there_is_one_without_a_name():
    assert QuestionBook.loads("- {id: a, text: b}").views == (View(),)


def test_a_book_with_views_is_saved_and_read(tmp_path):
    book = QuestionBook.loads(FILE)
    book.save(tmp_path / "saved.yaml")
    again = QuestionBook.load(tmp_path / "saved.yaml")
    assert again.views == book.views and list(again) == list(book)


def test_a_file_of_views_of_its_own(tmp_path):
    path = tmp_path / "views.yaml"
    path.write_text(FILE.split("questions:")[0])
    views = load_views(path)
    book = QuestionBook.loads("- {id: a, text: b, view: door}", views=views)
    assert book.views == views
    with pytest.raises(QuestionError, match="q:3: views are described here and in views_file"):
        QuestionBook.loads(FILE, "q", views)
    path.write_text("views:\n")
    with pytest.raises(ViewError, match="views.yaml: describes no view"):
        load_views(path)


@pytest.mark.parametrize("line, told", [
    ("{region: [0.5, 0, 1.2, 1]}", "view 'b': region lies outside the picture: 1.2"),
    ("{region: [-0.1, 0, 1, 1]}", "lies outside the picture: -0.1"),
    ("{region: [0.5, 0.5, 0.5, 1]}", "x0 < x1 and y0 < y1"),
    ("{region: [0.8, 0.5, 0.5, 1]}", "x0 < x1 and y0 < y1"),
    ("{region: [0.5, 0.5, 0.5]}", "x y of 3 to 32 corners, not 3 numbers"),
    ("{region: [0, 0, 0.5, 0.5, 1, 1]}", "polygon without an area"),
    ("{region: [0, 0, 1, 1, 1, 0, 0, 1]}", "view 'b': region is a polygon whose sides cross"),
    ("{region: [0, 0, 1, 0.9, 1, 0, 0, 1]}", "a polygon whose sides cross"),
    ("{region: [0, 0, 0.5, 0.5, 0, 0]}", "polygon without an area"),
    ("{region: [[0, 0], [1, 0], [1, 1]]}", "views 'b': expected a plain value here, not a list in"),
    ("{region: [0, 0, 1, 0, 1, 1, 0, 1]}", "view 'b' differs in nothing from 'a'"),
    ("{region: [a, 0, 1, 1]}", "must hold numbers, not 'a'"),
    ("{region: 0.5}", "must be a list of numbers"),
    ("{region: [.nan, 0, 1, 1]}", "lies outside the picture: nan"),
    ("{sample_hz: 0}", "view 'b': sample_hz must be 0.5 to 60, not 0"),
    ("{window_groups: 1.5}", "window_groups must be a whole number"),
    ("{priority: -1}", "priority must be"),
    ("{max_age_s: yes}", "max_age_s must be a number, not True"),
    ("{transport: theora}", "transport must be one of raw, compressed, ffmpeg"),
    ("{image: 'two words'}", "image must be the name of a topic"),
    ("{image: /a/}", "image must be the name of a topic"),
    ("{image: /0a/b}", "image must be the name of a topic, such as /front/image_raw, not '/0a/b'"),
    ("{image: a~/b}", "image must be the name of a topic"),
    ("{image: 3}", "views 'b': image must be text, not 3"),
    ("{pixel_budget: 1e5}", "views 'b': pixel_budget: YAML reads 1e5 as a text: write all digits, "
                            "or a point and a sign (1.000e+05)"),
    ("/b", "views 'b': expected a mapping"),
    ("{regoin: [0, 0, 1, 1]}", "views 'b': unknown key 'regoin', did you mean 'region'?"),
    ("{}", "view 'b' differs in nothing from 'a'"),
    ("{name: c}", "views 'b': it has a name already: its key"),
])
def test_what_is_wrong_is_named_with_its_line(line, told):
    with pytest.raises(QuestionError) as error:
        QuestionBook.loads(f"views:\n  a:\n  b: {line}\nquestions: []", "file.yaml")
    assert told in str(error.value) and str(error.value).startswith("file.yaml:3: ")


def test_a_polygon_is_written_in_one_way():
    triangle = View("a", region=(0.1, 0.1, 0.9, 0.1, 0.5, 0.9))
    for same in ((0.9, 0.1, 0.5, 0.9, 0.1, 0.1), (0.5, 0.9, 0.9, 0.1, 0.1, 0.1),
                 (0.1, 0.1, 0.1, 0.1, 0.9, 0.1, 0.5, 0.9, 0.1, 0.1)):
        assert View("a", region=same) == triangle
    rectangle = View("a", region=(0.2, 0.1, 0.9, 0.8))
    assert View("a", region=(0.9, 0.8, 0.9, 0.1, 0.2, 0.1, 0.2, 0.8)) == rectangle
    bend = View("a", region=(0.0, 0.0, 0.9, 0.0, 0.9, 0.9, 0.5, 0.2))  # concave, and no fault
    assert bend.region != triangle.region


@pytest.mark.parametrize("name, told", [
    ("A", "view 'A': the name overlaps with 'a'"), ("a", "exists already"),
    ("in", "words of conditions"), ("all", "that name is taken"),
    ("decisions", "that name is taken"),
    ("two__", "is not a ROS name"), ("9", "is not a ROS name"), ("é", "is not a ROS name"),
])
def test_names_that_do_not_do(name, told):
    book = QuestionBook(views=[View("a", "/a")])
    with pytest.raises((QuestionError, ViewError), match=told):
        book.add_view(View(name, "/b"))
    assert [view.name for view in book.views] == ["a"]


def test_a_view_that_cannot_stand_beside_others_is_named_with_them():
    book = QuestionBook.loads("views: {front: {image: /f}, often: {image: /f, sample_hz: 2}}\n"
                              "questions:\n  - {id: x, text: y, unsure: often}", "q")
    with pytest.raises(QuestionError, match="view 'twin' differs in nothing from 'often'"):
        book.add_view(View("twin", "/f", sample_hz=2.0))
    with pytest.raises(QuestionError, match="view 'back' cannot be added: question 'x': unsure "
                                            "names the view 'often', which shows another camera"):
        book.add_view(View("back", "/b"))
    assert [view.name for view in book.views] == ["front", "often"]


def test_a_question_names_a_view_that_is_there():
    with pytest.raises(QuestionError, match=r"q:3: question 'x': view there is no 'back' \(there "
                                            r"are: front\)"):
        QuestionBook.loads("views: {front: {image: /f}}\nquestions:\n  - {id: x, text: y, "
                           "view: back}", "q")
    with pytest.raises(QuestionError, match=(
            "question 'x': needs names a question of the same view; an answer of the view 'front' "
            "goes into a condition, when: front.z")):
        QuestionBook([Question("x", "y", view="back", needs="front.z"), Question("z", "y")],
                     views=[View("front", "/f"), View("back", "/b")])
    with pytest.raises(QuestionError, match="there are: none has a name"):
        QuestionBook([Question("x", "y", view="front")])


def test_a_view_in_use_stays():
    book = QuestionBook.loads(FILE)
    with pytest.raises(QuestionError, match="view 'door': door_open asked of it"):
        book.remove_view("door")
    book.remove_view("long")
    with pytest.raises(QuestionError, match=r"no view 'long' \(there are: front, door\)"):
        book.remove_view("long")
    book.remove("door_open")
    book.remove_view("door")
    with pytest.raises(QuestionError, match="is the only one"):
        book.remove_view("front")


def test_a_rectangle_is_cut_out():
    image = np.arange(40 * 60 * 3, dtype=np.uint32).astype(np.uint8).reshape(40, 60, 3)
    part = View("a", region=(0.5, 0.25, 1.0, 0.75)).cut(image)
    assert np.array_equal(part, image[10:30, 30:60])
    assert View("a").cut(image) is image
    assert View("a", region=(0.0, 0.0, 1.0, 1.0)).cut(image) is image


def test_what_is_outside_a_polygon_is_grey():
    image = np.full((40, 60, 3), 9, np.uint8)
    part = View("a", region=(0.5, 0.0, 1.0, 0.5, 0.5, 1.0, 0.0, 0.5)).cut(image)
    assert part.shape == image.shape and part[20, 30, 0] == 9
    assert (part[[0, 0, -1, -1], [0, -1, 0, -1]] == OUTSIDE).all()
    assert 0.45 < (part[..., 0] == 9).mean() < 0.55, "a rhombus is half of its box"
    assert (image == 9).all(), "the picture itself is not touched"


def test_a_region_of_a_tiny_picture_has_a_pixel():
    assert View("a", region=(0.0, 0.0, 0.01, 0.01)).cut(np.zeros((4, 4, 3), np.uint8)).size == 3


def test_where_its_camera_is_does_not_describe_a_view():
    view = View("front", "cam", transport="raw")
    located = replace(view, source=("/robot/cam", "raw"))
    assert located == view and located.to_dict() == view.to_dict()
    assert view.camera == ("cam", "raw") and located.camera == ("/robot/cam", "raw")
    twin = View("twin", "/robot/cam", source=("/robot/cam", "raw"))
    assert located.shows_the_same(twin) and not view.shows_the_same(twin)
    with pytest.raises(QuestionError, match="source"):
        QuestionBook.loads("views: {a: {image: x, source: x}}\nquestions: []\n")
