"""A grammar of questions about the simulated desk, with the truth of each from the world's state.

A question is a clause (`clauses`), a denied clause, or two joined, in a frame that asks for it
("Is it true that ...?", "..., right?"). Everything it is made of is a tag. Some tags are held out
of training, by family: `draw` gives texts without any of them, or with those of one family only,
so that what a model does with forms and combinations it never met can be measured apart. Every
word of a held-out text occurs in training, but for those of `unanswerable`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from .clauses import (
    CONTRACTED,
    DEFINITE,
    OBJECTS,
    SEE,
    Clause,
    Speaker,
    clause,
    counting,
    empty_desk,
    only_thing,
    person_predicate,
    strange,
    with_article,
)
from .facts import Meaning, Scene, fact, facts_of
from .unknown_words import is_held_out

# {q}: the clause as a question; {s}: as a statement; {n}: without verb.
FRAMES = (
    "{s}, right?", "{s}, correct?", "{s}, yes?", "{s}?", "so {s}?", "{s}. is that true?",
    "{s}, is that correct?", "{s}, true?", "{s}, isn't that so?", "{s}, is that so?",
    "is it true that {s}?", "is it correct that {s}?", "is it the case that {s}?",
    "is it so that {s}?", "is it a fact that {s}?", "is it right to say that {s}?",
    "can you confirm that {s}?", "can you say that {s}?", "would you agree that {s}?",
    "would you say {s}?", "do you say that {s}?", "do you agree {s}?", "could you tell me if {s}?",
    "could you say whether {s}?", "could you please confirm that {s}?", "can you tell me if {s}?",
    "can you tell whether {s}?", "can you tell me whether {s}?", "please tell me if {s}.",
    "tell me whether {s}.", "tell me if {s}.", "please say whether {s}.", "check if {s}.",
    "check whether {s}.", "please confirm that {s}.", "I want to know if {s}.",
    "I would like to know whether {s}.", "let me know if {s}.", "I wonder whether {s}.",
    "do you think that {s}?", "do you think {s}?", "do you know if {s}?", "do you see that {s}?",
    "does it look as if {s}?", "does it look like {s}?", "does it seem that {s}?",
    "am I right that {s}?", "am I right in thinking that {s}?", "is this true: {s}?",
    "yes or no: {s}?", "yes or no: {q}?", "please: {q}?", "excuse me, {q}?", "tell me, {q}?",
    "{q}, please?", "please, {q}?", "{q} right now?", "{q} now?", "{q} at the moment?",
    "right now, {q}?", "now, {q}?", "currently, {q}?", "in this video, {q}?",
    "in the picture, {q}?", "at this moment, {q}?", "hello, {q}?", "one question: {q}?",
    "{n}?", "{n}?", "{n}?", "{n}, yes?", "{n}, right?",
    "could it be that {s}?", "is there any sign that {s}?", "I think {s}. am I right?",
    "I believe {s}. is that correct?", "surely {s}?", "is it certain that {s}?",
    "have you noticed that {s}?", "is it obvious that {s}?", "look and say whether {s}.",
    "any chance that {s}?", "{s}, don't you think?", "{s}, or am I mistaken?",
)
DENYING = (
    "is it false that {s}?", "is it wrong that {s}?", "is it untrue that {s}?",
    "is it incorrect that {s}?", "is it not true that {s}?", "is it not the case that {s}?",
    "is it wrong to say that {s}?", "would it be wrong to say that {s}?", "{s}, is that false?",
    "{s}, is that wrong?", "{s}, is that untrue?", "am I wrong that {s}?",
    "am I wrong in thinking that {s}?", "is this false: {s}?", "is this wrong: {s}?",
    "{s}, false?", "{s}, wrong?", "{s}. is that incorrect?", "is it a mistake to say that {s}?",
    "would you deny that {s}?", "can you rule out that {s}?", "is it not so that {s}?",
)
HELD_FRAMES = frozenset((
    "would you say that {s}?", "can you say whether {s}?", "could you confirm that {s}?",
    "could you tell me whether {s}?", "please check if {s}.", "at the moment, {q}?",
    "{s}, is that right?", "is it right that {s}?", "does it seem as if {s}?",
    "please tell me: {q}?", "do you agree that {s}?", "is it true to say that {s}?",
    "I would like to know if {s}.", "{s} right now, correct?",
))
SPLITS = ("seen", "template", "synonym", "negation", "composition", "counting", "unanswerable")
FAMILIES = {"frame": "template", "synonym": "synonym", "negation": "negation",
            "pair": "composition", "count": "counting"}  # of tags -> the split that holds some out
_ONE_IN = {"synonym": 5, "negation": 4, "pair": 4, "count": 4}
_DRAW = 71  # one of the draws that leave the plainest forms ("Is there no cup?") in training
_COMMON = frozenset(("person", "cup", "phone", "laptop", "pen", "book", "desk", "thing"))


def held_out(tag: str) -> bool:
    """Whether what a tag names is kept out of training."""
    family, member = tag.split(":", 1)
    if family == "frame":
        return member in HELD_FRAMES
    if family == "synonym" and member.split("|")[0] in _COMMON:
        return False
    return crc32(f"{_DRAW}{tag}".encode()) % _ONE_IN[family] == 0


@dataclass(frozen=True)
class Phrase:
    """A yes/no question: its text, its meaning, of what kinds of fact and of what parts it is."""

    text: str
    meaning: Meaning
    kinds: tuple[str, ...]
    tags: frozenset[str]
    motion: bool

    def answer(self, scene: Scene) -> bool | None:
        """Return the truth in a scene, None where it is undecided or cannot be known."""
        value = int(self.meaning.value(facts_of(scene)))
        return None if value == 0 else value > 0

    @property
    def held_out(self) -> frozenset[str]:
        """The splits that keep it out of training; none for a text to train on."""
        return frozenset(FAMILIES[t.split(":", 1)[0]] for t in self.tags if held_out(t))


# What is drawn for each split, as (share, how): attempts go on until the tags are right.
_SHAPES = {"plain": 0.34, "denied": 0.3, "joined": 0.2, "counted": 0.16}


def draw(rng: np.random.Generator, split: str = "train", without: frozenset[str] = frozenset(),
         ) -> Phrase:
    """Draw a question.

    Args:
        rng: the source of chance.
        split: "train" and "seen" are the same texts, without anything held out; "unknown" those
            that nothing can answer, for training; "unanswerable" the same in held-out words; the
            others of `SPLITS` hold something of that split, and of no other.
        without: families of tags that must not occur at all, in training ("negation": a control).
    """
    if split in ("unknown", "unanswerable"):
        other = split == "unanswerable"
        said = strange(rng, lambda word: is_held_out(word) != other, invented=not other)
        return _framed(rng, said, plain=0.7)
    wanted = frozenset() if split in ("train", "seen") else frozenset((split,))
    while True:
        shape = str(rng.choice(list(_SHAPES), p=list(_SHAPES.values())))
        if split in ("negation", "composition", "counting"):
            shape = {"negation": "denied", "composition": "joined", "counting": "counted"}[split]
        phrase = _draw(rng, shape, template=split == "template")
        if phrase.held_out == wanted and not any(t.split(":", 1)[0] in without
                                                 for t in phrase.tags):
            return phrase


def _draw(rng: np.random.Generator, shape: str, template: bool) -> Phrase:
    if shape == "denied":
        if rng.random() < 0.3:
            return _framed(rng, clause(rng), denying=True)
        negator = str(rng.choice(("not", "n't", "no", "no", "absent")))
        said = clause(rng, negator, _denied_kind(rng, negator))
        if rng.random() < 0.06:
            return _framed(rng, said, denying=True)
        # A contraction stands in statements only: as a question it would ask for the opposite.
        return _framed(rng, said, plain=0.0 if negator == "n't" else 0.5, template=template,
                       stated=negator == "n't")
    if shape == "joined":
        said = joined(rng)
    elif shape == "counted":
        roll = rng.random()
        said = counting(rng) if roll < 0.8 else (empty_desk if roll < 0.92 else only_thing)(rng)
    else:
        said = clause(rng)
        if not template and rng.random() < 0.08:
            said = _expecting(said)
    return _framed(rng, said, template=template)


def _expecting(said: Clause) -> Clause:
    """Return a question that expects a yes: "isn't there a cup?" asks whether there is one."""
    aux, _, rest = said.question.partition(" ")
    tag = f"negation:{aux}n't?|{said.kinds[0]}"
    if not rest or " any" in f" {rest}" or " not " in f" {rest} ":
        return said
    spelt = f"{aux}n't"
    return Clause(f"{CONTRACTED.get(spelt, spelt)} {rest}", "", said.meaning, said.kinds,
                  said.tags | {tag})


def _denied_kind(rng: np.random.Generator, negator: str) -> str | None:
    """Return a kind that has this way of denial; None for any."""
    if negator != "absent":
        return None
    return str(rng.choice(("presence", "person", "desk", "held", "company", "door")))


def _framed(rng: np.random.Generator, said: Clause, plain: float = 0.45, denying: bool = False,
            template: bool = False, stated: bool = False) -> Phrase:
    frames = sorted(HELD_FRAMES) if template else DENYING if denying else FRAMES
    while True:
        frame = "{q}?"
        if template or denying or rng.random() >= plain:
            frame = frames[int(rng.integers(len(frames)))]
        if ("{s}" in frame and not said.statement or "{n}" in frame and not said.short
                or stated and "{s}" not in frame):
            if not said.statement and (denying or stated):
                said = clause(rng)
                stated = False
            continue
        break
    text = frame.format(q=said.question, s=said.statement, n=said.short)
    tags, meaning = set(said.tags), said.meaning
    if frame != "{q}?":
        tags.add(f"frame:{frame}")
    if denying:
        meaning = ~meaning
        tags.add(f"negation:{frame}|{said.kinds[0]}")
    text = text[0].upper() + text[1:]
    roll = rng.random()
    if roll < 0.04:
        text = text[0].lower() + text[1:]
    elif roll < 0.08:
        text = text.rstrip("?.")
    elif roll < 0.12:
        text = " ".join(w for w in text.split() if w not in ("the", "a", "an"))
    text = ". ".join(part[:1].upper() + part[1:] if k else part
                     for k, part in enumerate(text.split(". ")))
    return Phrase(text, meaning, said.kinds, frozenset(tags), said.motion)


# -- two clauses in one ----------------------------------------------------------------------------

_CLAUSES = (  # question, statement ("" for none), how the meanings join
    ("{q1} and {q2}", "{s1} and {s2}", "and"), ("{q1} or {q2}", "{s1} or {s2}", "or"),
    ("{q1} while {s2}", "{s1} while {s2}", "and"), ("{q1} but {s2}", "{s1} but {s2}", "and"),
    ("{q1} and also {q2}", "{s1} and also {s2}", "and"),
    ("is it true that both {s1} and {s2}", "both {s1} and {s2}", "and"),
    ("is it true that either {s1} or {s2}", "either {s1} or {s2}", "or"),
    ("{q1} although {s2}", "{s1} although {s2}", "and"),
)
_PAIRS = (  # a: with article, n: without; how the meanings join
    ("{a1} and {a2}", "and"), ("both {a1} and {a2}", "and"), ("{a1} or {a2}", "or"),
    ("either {a1} or {a2}", "or"), ("{a1} but no {n2}", "but not"),
    ("{a1} but not {a2}", "but not"), ("{a1} without {a2}", "but not"),
    ("{a1} and no {n2}", "but not"), ("no {n1} but {a2}", "not but"),
    ("neither {a1} nor {a2}", "neither"), ("no {n1} and no {n2}", "neither"),
    ("no {n1} or {n2}", "neither"), ("not {a1} but {a2}", "not but"),
    ("{a1} as well as {a2}", "and"), ("{a1} and also {a2}", "and"),
    ("{a1} except {a2}", ""), ("at least one of {a1} and {a2}", "or"),
)
_DEEDS = (
    ("{1} and {2}", "and"), ("{1} or {2}", "or"), ("either {1} or {2}", "or"),
    ("both {1} and {2}", "and"), ("{1} but not {2}", "but not"), ("not {1} but {2}", "not but"),
    ("neither {1} nor {2}", "neither"), ("{1} and not {2}", "but not"),
    ("{1} while {2}", "and"), ("{1} without {2}", "but not"),
)


def _join(how: str, one: Meaning, other: Meaning) -> Meaning:
    return {"and": one & other, "or": one | other, "but not": one & ~other,
            "not but": ~one & other, "neither": ~one & ~other}[how]


def joined(rng: np.random.Generator) -> Clause:
    """Draw two clauses in one: of two things, of two deeds of one person, or any."""
    roll = rng.random()
    while True:
        found = (_two_things if roll < 0.4 else _two_deeds if roll < 0.65 else _two_clauses)(rng)
        if found is not None:
            return found


def _two_clauses(rng: np.random.Generator) -> Clause | None:
    negators = ("", "", "", "no", "not", "n't")
    one = clause(rng, str(rng.choice(negators[:5])))
    other = clause(rng, str(rng.choice(negators)))
    question, statement, how = _CLAUSES[int(rng.integers(len(_CLAUSES)))]
    if not one.statement or not other.statement or one.meaning.facts() & other.meaning.facts():
        return None
    if how == "or" and "{q2}" in question and not other.question:
        return None
    words = {"q1": one.question, "q2": other.question, "s1": one.statement, "s2": other.statement}
    form = statement.replace("{s1}", "").replace("{s2}", "").strip().replace("  ", " .. ")
    tag = f"pair:{form}|{one.kinds[0]}|{other.kinds[0]}"
    return Clause(question.format(**words), statement.format(**words),
                  _join(how, one.meaning, other.meaning), one.kinds + other.kinds,
                  one.tags | other.tags | {tag})


def _two_things(rng: np.random.Generator) -> Clause | None:
    form, how = _PAIRS[int(rng.integers(len(_PAIRS)))]
    place = str(rng.choice(("presence", "desk", "holding")))
    pool = {"presence": (*OBJECTS, "book", "person"), "desk": OBJECTS,
            "holding": ("cup", "phone", "pen", "book")}[place]
    first, second = (str(key) for key in rng.choice(pool, 2, replace=False))
    if not how or place == "holding" and how == "and":
        return None
    s = Speaker(rng, place)
    n1, n2 = s.noun(first), s.noun(second)
    words = form.format(a1=with_article(n1), a2=with_article(n2), n1=n1, n2=n2)
    kind = {"presence": "present", "desk": "on_desk", "holding": "held"}[place]
    names = ["person" if key == "person" else f"{kind}:{key}" for key in (first, second)]
    meaning = _join(how, *(fact(name) for name in names))
    s.tags.add(f"pair:{form}|{place}|{first}")
    roll = rng.random()
    if place == "holding":
        return s.say(s.pick(DEFINITE), "is", f"holding {words}", meaning)
    where = f" on {s.the('desk')}" if place == "desk" else ""
    if roll < 0.6:
        return s.say("there", "is", words + where, meaning)
    if roll < 0.8 or place != "desk":
        return s.say("you", "can", f"{s.pick(SEE)} {words}{where}", meaning)
    desk = where.removeprefix(" on ")
    return s.say(desk, "does", f"have {words} on it", meaning, f"has {words} on it")


def _two_deeds(rng: np.random.Generator) -> Clause | None:
    form, how = _DEEDS[int(rng.integers(len(_DEEDS)))]
    s = Speaker(rng, "deeds")
    (one, m1, kind1), (other, m2, kind2) = person_predicate(s), person_predicate(s)
    if kind1 == kind2 and (how == "and" or m1 == m2) or m1.facts() & m2.facts():
        return None
    if "without" in form and not other.split()[0].endswith("ing"):
        return None
    if "while" in form and not other.split()[0].endswith("ing"):
        return None
    s.tags.add(f"pair:{form} (deeds)|{kind1}|{kind2}")
    meaning = _join(how, m1, m2)
    words = form.replace("{1}", one).replace("{2}", other)
    made = s.say(s.pick(DEFINITE[:7]), "is", words, meaning)
    return replace(made, kinds=(kind1, kind2))


# -- balance ---------------------------------------------------------------------------------------

class Balance:
    """How often each question is true, to ask it as often where it is as where it is not."""

    def __init__(self, scenes: list[Scene]) -> None:
        """`scenes`: what the world shows, a few hundred of it."""
        every = [facts_of(scene) for scene in scenes]
        self._facts = {name: np.array([facts[name] for facts in every], np.int8)
                       for name in every[0]}
        self._share = functools.lru_cache(50_000)(self._measure)

    def _measure(self, meaning: Meaning) -> float:
        values = meaning.value(self._facts)
        yes, no = int((values > 0).sum()), int((values < 0).sum())
        return yes / (yes + no) if yes + no else 0.5

    def share(self, meaning: Meaning) -> float:
        """Return the share of scenes in which it is true, of those in which it is decided."""
        return self._share(meaning)

    def keep(self, meaning: Meaning, facts: Mapping[str, int], rng: np.random.Generator) -> bool:
        """Whether to ask it where `facts` hold: the rarer answer always, the other as often."""
        value, share = int(meaning.value(facts)), self.share(meaning)
        if value == 0 or not 0.02 <= share <= 0.98:
            return False
        own = share if value > 0 else 1 - share
        return bool(own <= 0.5 or rng.random() < (1 - own) / own)
