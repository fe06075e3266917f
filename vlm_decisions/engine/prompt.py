"""Prompts as token ids: the checkpoint's own chat template, cut where states are shared.

A prompt is ``header | group group ... | instruction | body | tail``. The header and the groups are
the shared state; everything from the instruction on belongs to one question. Each piece is
tokenised by itself and the pieces are chosen so that this equals tokenising the whole text: the
header and the groups end at a newline or a control token, and the instruction ends in a newline,
which the pre-tokenizer never merges with what follows. The constructor checks that on a probe.

What users type (question text, options) is tokenised as plain text by a tokenizer that knows no
control tokens at all, so ``<|im_end|>`` or ``<think>`` in a question is just characters.

Pure Python beside a Hugging Face tokenizer object; importing this module does not import MLX.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

VISION_START: Final = "<|vision_start|>"
VISION_END: Final = "<|vision_end|>"
PADS: Final = {"video": "<|video_pad|>", "image": "<|image_pad|>"}
INSTRUCTIONS: Final = {
    "video": "Answer the question about the video with one word or letter:\n",
    "image": "Answer the question about the image with one word or letter:\n",
}
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PLACEHOLDER: Final = "QUESTIONPLACEHOLDER"
_TAG: Final = re.compile(r"[<\[]\|?(/?)[A-Za-z_][\w-]*\|?[>\]]")  # <x>, <|x|>, [x]
_ROLE: Final = re.compile(r".*<\|im_(?:start\|>\w+|end\|>)", re.DOTALL)


class PromptError(ValueError):
    """The tokenizer, its chat template or a question cannot make a prompt; the text says why."""


@dataclass(frozen=True)
class QuestionTokens:
    """One question behind the shared state.

    ids: instruction + body + tail; the answer is read from the hidden state of the last one.
    answer_ids: one vocabulary id per answer, ordered (yes, no) or as the options were given.
    trunk: how many leading ids are the same for every question (the instruction).
    lettered: whether the options are read as the letters A, B, ... instead of their own tokens.
    """

    ids: list[int]
    answer_ids: list[int]
    trunk: int
    lettered: bool = False


def _check_text(text: object) -> None:
    """Raise PromptError unless ``text`` is a text that can be encoded."""
    if not isinstance(text, str):
        raise PromptError(f"a question's text and options are texts, not {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PromptError(f"{text!r} is not valid Unicode: {error.reason}") from error


def clean(text: str) -> str:
    """Return ``text`` on one line: runs of white space become one space, the ends are stripped."""
    return " ".join(text.split())


def plain_tokenizer(tokenizer: Any) -> Any:
    """Return a ``tokenizers.Tokenizer`` with the same vocabulary and no added (control) tokens.

    Toggling ``encode_special_tokens`` is not enough: it leaves added tokens that are not marked
    special (Qwen's ``<think>``, ``<tool_call>``) recognised, and it changes a shared object.
    """
    from tokenizers import Tokenizer

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise PromptError(
            f"tokenizer {type(tokenizer).__name__} is not a fast one (no backend_tokenizer): "
            "user text cannot be kept free of control tokens"
        )
    plain = Tokenizer(backend.model)  # shared: a large vocabulary takes seconds to build anew
    if backend.normalizer is not None:
        plain.normalizer = backend.normalizer
    if backend.pre_tokenizer is not None:
        plain.pre_tokenizer = backend.pre_tokenizer
    return plain


class PromptTemplate:
    """The pieces of a checkpoint's prompt for one medium (``video`` or ``image``), as token ids."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        media: str = "video",
        outer_vision_tokens: bool = False,
        one_block: bool = False,
    ) -> None:
        """Cut the chat template of ``tokenizer``; raise PromptError where it cannot be cut.

        outer_vision_tokens: keep the template's own vision_start and vision_end around all groups
        of a video, as transformers' processors from 5.24 on do; earlier ones and mlx-vlm do not.
        one_block:
        the groups of a video follow one another without time stamps and vision tokens of their
        own, as in Qwen2.5-VL.
        """
        if media not in PADS:
            raise PromptError(f"media must be 'video' or 'image', not {media!r}")
        self.media, self.one_block = media, one_block and media == "video"
        self.tokenizer = tokenizer
        self._plain = plain_tokenizer(tokenizer)
        self._stamps: dict[str, list[int]] = {}
        self.pad_id = self._control_id(PADS[media])
        self.vision_start_id = self._control_id(VISION_START)
        self.vision_end_id = self._control_id(VISION_END)
        self._control_ids = frozenset(tokenizer.added_tokens_decoder)
        header, lead, tail = self._render()
        self._check_tail(tail)
        if (outer_vision_tokens or one_block) and media == "video":
            header, lead = header + VISION_START, VISION_END + lead
        self.header_text, self.tail_text = header, tail
        self.instruction_text = lead + INSTRUCTIONS[media]
        self.header_ids = self._template_ids(header)
        self.tail_ids = self._template_ids(tail)
        self.instruction_ids = self._template_ids(self.instruction_text)
        self.yes_id = self._answer_token("Yes")
        self.no_id = self._answer_token("No")
        if self.yes_id == self.no_id:
            raise PromptError("the tokens of 'Yes' and 'No' are the same")
        self._check_cuts()

    # ---- pieces -----------------------------------------------------------------------------

    def group_text(self, t_s: float, n_tokens: int) -> str:
        """Text of one vision group of ``n_tokens`` visual tokens at ``t_s`` seconds."""
        if self.one_block:
            return PADS[self.media] * n_tokens
        stamp = f"<{t_s:.1f} seconds>" if self.media == "video" else ""
        return f"{stamp}{VISION_START}{PADS[self.media] * n_tokens}{VISION_END}"

    def group_ids(self, t_s: float, n_tokens: int) -> list[int]:
        """Token ids of one vision group.

        t_s: mean time of the group's frames in seconds since the first frame (ignored for images).
        n_tokens: visual tokens of the group, after merging. Raises PromptError when not sensible.
        """
        if not (t_s >= 0.0 and t_s != float("inf")):
            raise PromptError(f"a group's time must be finite and not negative, not {t_s!r} s")
        if n_tokens < 1:
            raise PromptError(f"a group needs at least one visual token, not {n_tokens}")
        if self.one_block:
            return [self.pad_id] * n_tokens
        stamp = self._stamp_ids(f"<{t_s:.1f} seconds>") if self.media == "video" else []
        return [*stamp, self.vision_start_id, *[self.pad_id] * n_tokens, self.vision_end_id]

    def question(self, text: str, options: Sequence[str] = ()) -> QuestionTokens:
        """Token ids of a question: yes/no without options, else one of them is the answer."""
        body, answer_ids, lettered = self._body(text, options)
        ids = [*self.instruction_ids, *self._plain_ids(body), *self.tail_ids]
        return QuestionTokens(ids, answer_ids, len(self.instruction_ids), lettered)

    def question_text(self, text: str, options: Sequence[str] = ()) -> str:
        """Return the same question as text (to print it, or to check the tokenisation)."""
        return self.instruction_text + self._body(text, options)[0] + self.tail_text

    @staticmethod
    def check(text: str, options: Sequence[str] = ()) -> None:
        """Raise PromptError unless a question's text and options are texts that can be encoded."""
        if isinstance(options, str):
            raise PromptError(f"the options of a question are a list of texts, not {options!r}")
        for one in (text, *(options or ())):
            _check_text(one)

    # ---- inside -----------------------------------------------------------------------------

    def _body(self, text: str, options: Sequence[str]) -> tuple[str, list[int], bool]:
        self.check(text, options)
        text = clean(text)
        if not text:
            raise PromptError("the question is empty")
        if not options:
            return text, [self.yes_id, self.no_id], False
        options = [clean(option) for option in options]
        if len(options) < 2 or not all(options):
            raise PromptError(f"a question with options needs at least two options that are not "
                              f"empty: {options}")
        if len(set(options)) != len(options):
            raise PromptError(f"the options of a question must differ: {options}")
        own = [self._plain_ids(option) for option in options]
        if all(len(ids) == 1 for ids in own) and len({ids[0] for ids in own}) == len(own):
            return f"{text}\nOptions: {', '.join(options)}", [ids[0] for ids in own], False
        if len(options) > len(LETTERS):
            raise PromptError(f"at most {len(LETTERS)} lettered options, not {len(options)}")
        letters = LETTERS[: len(options)]
        lines = "".join(f"\n{a}. {option}" for a, option in zip(letters, options, strict=True))
        return text + lines, [self._answer_token(letter) for letter in letters], True

    def _plain_ids(self, text: str) -> list[int]:
        ids = self._plain.encode(text, add_special_tokens=False).ids
        if not self._control_ids.isdisjoint(ids):
            raise PromptError(f"user text became a control token: {text!r}")
        return ids

    def _template_ids(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def _stamp_ids(self, text: str) -> list[int]:
        """Ids of a time stamp, remembered: a running stream states the same times again."""
        if text not in self._stamps:
            if len(self._stamps) >= 1024:
                self._stamps.clear()
            self._stamps[text] = self._template_ids(text)
        return self._stamps[text]

    def _control_id(self, token: str) -> int:
        index = self.tokenizer.backend_tokenizer.token_to_id(token)
        if index is None:
            raise PromptError(f"the tokenizer has no {token} token: not a Qwen-VL tokenizer")
        return index

    def _answer_token(self, word: str) -> int:
        ids = self._plain_ids(word)
        if len(ids) != 1:
            raise PromptError(f"{word!r} is {len(ids)} tokens in this vocabulary; one is needed")
        return ids[0]

    def _render(self) -> tuple[str, str, str]:
        """Return the template's text before the vision block, between it and the text, after."""
        content = [{"type": self.media}, {"type": "text", "text": _PLACEHOLDER}]
        try:
            text = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": content}],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
            )
        except Exception as error:  # jinja and transformers raise many kinds
            raise PromptError(f"the chat template cannot be rendered: {error}") from error
        block = f"{VISION_START}{PADS[self.media]}{VISION_END}"
        if text.count(block) != 1 or text.count(_PLACEHOLDER) != 1:
            raise PromptError(
                f"the chat template must render one {block} and the text once; it gave {text!r}"
            )
        header, rest = text.split(block)
        if _PLACEHOLDER not in rest:
            raise PromptError("the chat template puts the text before the vision block")
        lead, tail = rest.split(_PLACEHOLDER)
        return header, lead, tail

    @staticmethod
    def _check_tail(tail: str) -> None:
        """Raise where the answer would begin inside an open block, as of thoughts."""
        open_tags: list[str] = []
        for tag in _TAG.finditer(_ROLE.sub("", tail)):
            if not tag[1]:
                open_tags.append(tag[0])
            elif tag[0].replace("/", "", 1) in open_tags:
                open_tags.remove(tag[0].replace("/", "", 1))
        if open_tags:
            raise PromptError(
                f"the chat template begins the answer with an open {open_tags[-1]} although it "
                "was asked not to (enable_thinking=False): its first token is a thought, not the "
                "answer; take a checkpoint that answers at once (Instruct)"
            )

    def _check_cuts(self) -> None:
        """Raise where the pieces' ids differ from those of the whole text (a merge over a cut)."""
        bodies = (("Is a person there?", ()), ("Which is it?", ("one of these", "or that one")))
        for text, options in bodies:
            whole = self.header_text + self.group_text(0.1, 2) + self.group_text(12.3, 2)
            whole += self.question_text(text, options)
            pieces = [*self.header_ids, *self.group_ids(0.1, 2), *self.group_ids(12.3, 2)]
            pieces += self.question(text, options).ids
            if pieces != self._template_ids(whole):
                raise PromptError("this tokenizer merges tokens across the cuts of the prompt")
