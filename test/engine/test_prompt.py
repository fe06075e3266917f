"""The prompt's pieces: layout, plain user text, choices, and the cuts between them."""

import copy

import pytest
from tiny import NOT_MARKED_SPECIAL, SPECIAL, small_tokenizer

from vlm_decisions.engine.prompt import INSTRUCTIONS, PromptError, PromptTemplate


@pytest.fixture(scope="module")
def tok():
    return small_tokenizer()


@pytest.fixture(scope="module")
def video(tok):
    return PromptTemplate(tok)


def ids_of(tok, text):
    return tok(text, add_special_tokens=False)["input_ids"]


def test_pieces_are_the_chat_template(tok, video):
    assert tok.decode(video.header_ids) == "<|im_start|>user\n"
    assert tok.decode(video.tail_ids) == (
        "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert tok.decode(video.instruction_ids) == INSTRUCTIONS["video"]
    assert tok.decode(video.group_ids(0.0625, 3)) == (
        "<0.1 seconds><|vision_start|>" + "<|video_pad|>" * 3 + "<|vision_end|>"
    )
    image = PromptTemplate(tok, media="image")
    assert tok.decode(image.group_ids(0.0, 2)) == (
        "<|vision_start|><|image_pad|><|image_pad|><|vision_end|>"
    )
    assert tok.decode(image.instruction_ids) == INSTRUCTIONS["image"]


@pytest.mark.parametrize("media", ["video", "image"])
@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("Is a person present?", ()),
        ("What is the person mainly doing?", ("typing", "drinking", "on phone")),
        ("Is it é, 漢字 or 🙂?", ("typing", "reading")),
    ],
)
def test_concatenated_pieces_equal_the_whole_text(tok, media, text, options):
    template = PromptTemplate(tok, media=media)
    whole = template.header_text
    pieces = list(template.header_ids)
    for t_s in (0.0, 0.35, 12.0):
        whole += template.group_text(t_s, 4)
        pieces += template.group_ids(t_s, 4)
    whole += template.question_text(text, options)
    pieces += template.question(text, options).ids
    assert pieces == ids_of(tok, whole)


def test_a_space_at_the_cut_would_change_the_tokens(tok, video):
    # The control for the test above: this instruction does not survive being cut.
    wrong = video.instruction_text.rstrip("\n") + " "
    assert ids_of(tok, wrong) + ids_of(tok, "Is a cup there?") != ids_of(
        tok, wrong + "Is a cup there?"
    )


@pytest.mark.parametrize("control", SPECIAL + NOT_MARKED_SPECIAL)
def test_typed_control_tokens_stay_plain_text(tok, video, control):
    control_id = tok.convert_tokens_to_ids(control)
    typed = f"Is {control} a{control}?"
    assert control_id in ids_of(tok, typed)  # the ordinary tokenizer would have obeyed
    plain = video.question("Is x a x?")
    n_control = plain.ids.count(control_id)
    for question in (
        video.question(typed),
        video.question("Which?", (control, "typing")),
        video.question("Which?", (f"a {control}", "b")),
    ):
        assert question.ids.count(control_id) == n_control
        assert control_id not in question.answer_ids
    body = video.question(typed).ids[video.question(typed).trunk : -len(video.tail_ids)]
    assert tok.decode(body) == typed


def test_yes_no_reads_yes_then_no(tok, video):
    question = video.question("  Is a\n person \tpresent? ")
    assert [tok.decode([i]) for i in question.answer_ids] == ["Yes", "No"]
    assert question.ids == video.question("Is a person present?").ids
    assert question.ids[: question.trunk] == video.instruction_ids
    assert question.ids[-len(video.tail_ids) :] == video.tail_ids


def test_single_token_options_are_read_themselves(tok, video):
    question = video.question("What is it?", ("typing", "drinking", "idle"))
    assert [tok.decode([i]) for i in question.answer_ids] == ["typing", "drinking", "idle"]
    assert not question.lettered
    body = tok.decode(question.ids[question.trunk : -len(video.tail_ids)])
    assert body == "What is it?\nOptions: typing, drinking, idle"


def test_longer_options_are_lettered(tok, video):
    question = video.question("What is it?", ("typing", "on phone"))
    assert [tok.decode([i]) for i in question.answer_ids] == ["A", "B"]
    assert question.lettered
    body = tok.decode(question.ids[question.trunk : -len(video.tail_ids)])
    assert body == "What is it?\nA. typing\nB. on phone"


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        ("  \n", (), "empty"),
        ("Which?", ("one",), "at least two"),
        ("Which?", ("one", " "), "at least two"),
        ("Which?", ("a b", " a  b "), "differ"),
        ("Which?", tuple(f"thing number {i}" for i in range(27)), "26"),
    ],
)
def test_bad_questions_are_named(video, text, options, match):
    with pytest.raises(PromptError, match=match):
        video.question(text, options)


@pytest.mark.parametrize("t_s", [-0.1, float("nan"), float("inf")])
def test_bad_times_are_refused(video, t_s):
    with pytest.raises(PromptError, match="time"):
        video.group_ids(t_s, 4)


def test_bad_media_and_templates_are_named(tok):
    with pytest.raises(PromptError, match="media"):
        PromptTemplate(tok, media="audio")

    class Broken:
        def __init__(self, template):
            self.template = template

        def __getattr__(self, name):
            return getattr(tok, name)

        def __call__(self, *args, **kwargs):
            return tok(*args, **kwargs)

        def apply_chat_template(self, messages, **kwargs):
            return self.template.format(text=messages[0]["content"][1]["text"])

    with pytest.raises(PromptError, match="must render one"):
        PromptTemplate(Broken("<|im_start|>user\n{text}<|im_end|>"))
    with pytest.raises(PromptError, match="before the vision block"):
        PromptTemplate(Broken("{text}<|vision_start|><|video_pad|><|vision_end|>"))
    with pytest.raises(PromptError, match="merges tokens"):
        # a template that ends its text in the middle of a word: the tail merges with the question
        PromptTemplate(Broken("u\n<|vision_start|><|video_pad|><|vision_end|>{text}seconds<|im_end|>"))


@pytest.mark.parametrize(
    ("ending", "match"),
    [("<think>\\n", "open <think>"), ("<think>\\n\\n</think>\\n<reasoning>", "open <reasoning>"),
     ("<|think|>", r"open <\|think\|>"), ("[THINK]\\n", r"open \[THINK\]")],
)
def test_an_answer_that_would_begin_with_a_thought(tok, ending, match):
    """A template that goes on thinking whatever it is told: a Thinking checkpoint's."""
    thinking = copy.deepcopy(tok)
    thinking.chat_template = tok.chat_template.replace(
        "{{- '<think>\\n\\n</think>\\n\\n' -}}", "{{- '" + ending + "' -}}"
    )
    assert thinking.chat_template != tok.chat_template
    with pytest.raises(PromptError, match=match):
        PromptTemplate(thinking)


def test_outer_vision_tokens_around_all_groups(tok):
    """As transformers 5.24 puts timestamped groups between the template's own vision tokens."""
    template = PromptTemplate(tok, outer_vision_tokens=True)
    ids = [*template.header_ids, *template.group_ids(0.1, 2), *template.group_ids(0.3, 2),
           *template.question("Is it a cup?").ids]  # fmt: skip
    pads = "<|vision_start|><|video_pad|><|video_pad|><|vision_end|>"
    assert tok.decode(ids).startswith(
        f"<|im_start|>user\n<|vision_start|><0.1 seconds>{pads}<0.3 seconds>{pads}<|vision_end|>"
        "Answer the question"
    )
    image = PromptTemplate(tok, media="image", outer_vision_tokens=True)
    assert image.header_ids == PromptTemplate(tok, media="image").header_ids


@pytest.mark.parametrize(
    ("text", "options", "match"),
    [
        (None, (), "NoneType"),
        (7, (), "int"),
        ("a \ud800 b", (), "not valid Unicode"),
        ("Which?", ("cup", None), "NoneType"),
        ("Which?", ("cup", "\udcff"), "not valid Unicode"),
        ("Which?", "cup", "a list of texts"),
    ],
)
def test_what_is_no_text_is_named(video, text, options, match):
    with pytest.raises(PromptError, match=match):
        video.question(text, options)
