"""The embedded model's tokenizer: a small byte-level BPE with Qwen's tokens and template."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
           "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>")
THINK = ("<think>", "</think>")

# Qwen's pre-tokenizer: contractions, words, single digits, punctuation, newlines, spaces.
_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
          r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CHAT_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content is string %}
{{- message.content }}
{%- else %}
{%- for item in message.content %}
{%- if item.type == 'image' %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif item.type == 'video' %}
{{- '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif item.type == 'text' %}
{{- item.text }}
{%- else %}
{{- raise_exception('unexpected content type ' + item.type) }}
{%- endif %}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- else %}
{{- '<think>\\n' }}
{%- endif %}
{%- endif %}
"""


def build_tokenizer(lines: Iterable[str], vocab_size: int = 768) -> Any:
    """Train the tokenizer on `lines`.

    Returns:
        A `transformers.PreTrainedTokenizerFast` of at most `vocab_size` ids, the special tokens
        included.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL) - len(THINK), min_frequency=2, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in THINK])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL))
    fast.chat_template = CHAT_TEMPLATE
    return fast


def grow(tokenizer: Any, lines: Iterable[str]) -> tuple[Any, list[list[int]]]:
    """Give every word of `lines` an id of its own.

    Ids of the vocabulary stay, those of the control tokens move behind the new ones. Merges are
    added behind the present ones, so that whatever was one token stays one.

    Returns:
        The tokenizer, and for each of its ids the present ids that it is made of.
    """
    from tokenizers import AddedToken, Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    spec["added_tokens"] = []
    before = Tokenizer.from_str(json.dumps(spec))
    words = {word for line in lines for word, _ in before.pre_tokenizer.pre_tokenize_str(line)}
    added = set(tokenizer.added_tokens_decoder)
    vocabulary = {word: k for word, k in spec["model"]["vocab"].items() if k not in added}
    merges = [tuple(pair) for pair in spec["model"]["merges"]]
    made = {k: [k] for k in vocabulary.values()}
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    for word in sorted(words):
        pieces = list(word)
        while len(pieces) > 1:  # as the tokenizer merges them
            at = min(range(len(pieces) - 1),
                     key=lambda i: ranks.get((pieces[i], pieces[i + 1]), len(ranks) + 1))
            pair = pieces[at], pieces[at + 1]
            if pair not in ranks:
                if len(pieces) == len(word):
                    at, pair = 0, (pieces[0], pieces[1])
                ranks[pair] = len(merges)
                merges.append(pair)
            joined = "".join(pair)
            if joined not in vocabulary:
                vocabulary[joined] = len(vocabulary)
                made[vocabulary[joined]] = made[vocabulary[pair[0]]] + made[vocabulary[pair[1]]]
            pieces[at:at + 2] = [joined]
    backend = Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer, backend.decoder = before.pre_tokenizer, before.decoder
    special = [tokenizer.decode([k]) for k in sorted(added)]
    backend.add_special_tokens([AddedToken(t, special=True) for t in special if t in SPECIAL])
    backend.add_tokens([AddedToken(t, special=False, normalized=False) for t in THINK])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL))
    fast.chat_template = CHAT_TEMPLATE
    for token in (*SPECIAL, *THINK):
        made[fast.convert_tokens_to_ids(token)] = [tokenizer.convert_tokens_to_ids(token)]
    return fast, [made[k] for k in range(len(fast))]
