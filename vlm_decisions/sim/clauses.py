"""Clauses about the simulated desk: one fact each, in many words, as question and as statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .facts import MOST_COUNTED, OBJECTS, UNKNOWN, Meaning, fact
from .unknown_words import ADJECTIVES, NOUNS, VERBS

SYNONYMS = {
    "cup": ("cup", "mug", "teacup", "coffee cup", "drinking cup"),
    "phone": ("phone", "smartphone", "mobile", "mobile phone", "cell phone", "cellphone",
              "telephone"),
    "laptop": ("laptop", "notebook", "computer", "laptop computer", "notebook computer"),
    "pen": ("pen", "ballpoint", "biro", "ballpoint pen"),
    "book": ("book", "paperback", "novel"),
    "desk": ("desk", "table", "worktop", "tabletop"),
    "person": ("person", "human", "individual", "human being"),
    "thing": ("thing", "object", "item"),
}
DEFINITE = ("the person", "the person", "the person", "the human", "the individual", "the user",
            "that person", "he", "she", "they")
INDEFINITE = ("someone", "somebody", "a person", "anyone", "anybody", "a human")
NO_ONE = ("nobody", "no one", "no person", "no human")
NUMBERS = ("zero", "one", "two", "three", "four", "five")


@dataclass(frozen=True)
class Clause:
    """Words and what they ask.

    question: without capital and mark ("is there a cup"). statement: the same as one ("there is a
    cup"), empty where there is none. short: the same without verb ("cup on the desk"), if any.
    tags: what it is made of, as "family:member" (see `grammar.SPLITS`). kinds: of its facts.
    """

    question: str
    statement: str
    meaning: Meaning
    kinds: tuple[str, ...]
    tags: frozenset[str] = frozenset()
    short: str = ""

    @property
    def motion(self) -> bool:
        """Whether one moment alone cannot show the answer."""
        return any(name.startswith(("motion:", "moving", "still")) for name in self.meaning.facts())


class Speaker:
    """Picks words for one clause and keeps what it picked as tags."""

    def __init__(self, rng: np.random.Generator, kind: str, negator: str = "") -> None:
        """`negator`: "" or how the clause is denied: "not", "n't", "no" or "absent"."""
        self.rng, self.kind, self.negator = rng, kind, negator
        self.tags: set[str] = set()

    def pick(self, words: Sequence[str]) -> str:
        return words[int(self.rng.integers(len(words)))]

    def noun(self, key: str) -> str:
        """Return one of the words for a thing; what is no key stands for itself."""
        words = SYNONYMS.get(key)
        if words is None:
            return key
        word = words[0] if self.rng.random() < 0.35 else self.pick(words)
        self.tags.add(f"synonym:{word}|{self.kind}")
        return word

    def a(self, key: str) -> str:
        return with_article(self.noun(key))

    def the(self, key: str) -> str:
        return "the " + self.noun(key)

    def one(self, key: str) -> str:
        """Return the thing with either article."""
        return self.the(key) if self.rng.random() < 0.6 else self.a(key)

    def who(self) -> str:
        """Return someone to say something of: a denial needs to say of whom."""
        if self.negator == "no":
            word = self.pick(NO_ONE)
            self.tags.add(f"negation:{word}|{self.kind}")
            return word
        words = DEFINITE if self.negator or self.rng.random() < 0.7 else INDEFINITE
        return self.pick(words)

    def say(self, subject: str, aux: str, rest: str, meaning: Meaning, finite: str = "",
            denied: bool = False) -> Clause:
        """Make the clause of its parts.

        finite: what a statement has for `aux rest` ("holds a cup"). denied: `meaning` is that of
        the words as they stand, and the negator is in them already.
        """
        if subject in ("they", "you", "we"):
            aux = {"is": "are", "does": "do", "has": "have"}.get(aux, aux)
        anyone = subject.startswith("any") or rest.startswith(("any ", "holding any"))
        if denied or not self.negator:
            question = f"{aux} {subject} {rest}"
            statement = f"{subject} {finite or f'{aux} {rest}'}"
        else:
            meaning = ~meaning
            self.tags.add(f"negation:{self.negator}|{self.kind}")
            question = f"{aux} {subject} not {rest}"
            spelt = {"not": f"{aux} not", "n't": f"{aux}n't"}[self.negator]
            statement = f"{subject} {CONTRACTED.get(spelt, spelt)} {rest}"
        bare = subject.split(" ", 1)[1] if subject.startswith(("the ", "a ", "an ")) else subject
        short = ""
        if aux in ("is", "are") and not self.negator and subject not in ("he", "she", "they"):
            short = rest if subject == "there" else f"{bare} {rest}"
        return Clause(question, "" if anyone else statement, meaning, (self.kind,),
                      frozenset(self.tags), short)


CONTRACTED = {"cann't": "can't", "can not": "cannot"}


def with_article(noun: str) -> str:
    """Return a noun with its indefinite article."""
    if noun.startswith(("some", "any", "no ")):
        return noun
    vowel = noun[0] in "aeiou" and not noun.startswith(("uni", "use"))
    return f"{'an' if vowel else 'a'} {noun}"


IN_VIEW = ("visible", "in view", "present", "in the picture", "in the image", "in sight",
           "to be seen", "shown", "here", "in the scene", "in the video", "in the room", "around",
           "there", "present in the room", "visible in the picture", "in the frame")
WHERE = ("", "", "", "", "", " here", " in view", " in the picture", " in the image", " in sight",
         " in the scene", " in the video", " somewhere", " in the room", " anywhere", " around",
         " in the frame")
SHOWN = (("the picture", "show", "shows"), ("the image", "show", "shows"),
         ("the video", "show", "shows"), ("the scene", "contain", "contains"),
         ("the picture", "contain", "contains"), ("the camera", "see", "sees"),
         ("the scene", "show", "shows"), ("the room", "have", "has"),
         ("the frame", "show", "shows"))
SEE = ("see", "see", "see", "see", "spot", "find", "notice", "detect", "make out", "recognise")
GONE = ("missing", "absent", "gone", "nowhere to be seen", "out of sight", "out of view",
        "not there", "nowhere")


def presence(s: Speaker, key: str, meaning: Meaning) -> Clause:
    """Say that something is in view."""
    roll = s.rng.random()
    if s.negator == "absent":
        word = s.pick(GONE)
        s.tags.add(f"negation:{word}|{s.kind}")
        return s.say(s.the(key), "is", word, ~meaning, denied=True)
    if s.negator == "no":
        noun = s.noun(key)
        if roll < 0.45:
            s.tags.add(f"negation:there is no|{s.kind}")
            return s.say("there", "is", f"no {noun}{s.pick(WHERE)}", ~meaning, denied=True)
        if roll < 0.65:
            s.tags.add(f"negation:no|{s.kind}")
            return s.say(f"no {noun}", "is", s.pick(IN_VIEW), ~meaning, denied=True)
        if roll < 0.75:
            s.tags.add(f"negation:no can be|{s.kind}")
            return s.say(f"no {noun}", "can", "be seen", ~meaning, denied=True)
        if roll < 0.85:
            s.tags.add(f"negation:see no|{s.kind}")
            return s.say("you", "can", f"{s.pick(SEE)} no {noun}", ~meaning, denied=True)
        subject, verb, finite = s.pick(SHOWN)
        if roll < 0.95:
            s.tags.add(f"negation:show no|{s.kind}")
            return s.say(subject, "does", f"{verb} no {noun}", ~meaning, f"{finite} no {noun}",
                         denied=True)
        word = s.pick(("without", "lack", "free of"))
        s.tags.add(f"negation:{word}|{s.kind}")
        place = s.pick(("the picture", "the scene", "the image"))
        if word == "lack":
            return s.say(place, "does", f"lack {with_article(noun)}", ~meaning,
                         f"lacks {with_article(noun)}", denied=True)
        return s.say(place, "is", f"{word} {with_article(noun)}", ~meaning, denied=True)
    if roll < 0.45:
        noun = s.noun(key)
        some = "any " + noun if s.rng.random() < 0.08 else with_article(noun)
        return s.say("there", "is", some + s.pick(WHERE), meaning)
    if roll < 0.65:
        return s.say(s.a(key) if s.rng.random() < 0.7 else s.the(key), "is", s.pick(IN_VIEW),
                     meaning)
    if roll < 0.72:
        return s.say(s.a(key), "can", "be seen", meaning)
    if roll < 0.83:
        return s.say("you", "can", f"{s.pick(SEE)} {s.a(key)}{s.pick(WHERE)}", meaning)
    if roll < 0.92:
        rest = f"{s.pick((*SEE, 'have'))} {s.a(key)}{s.pick(WHERE)}"
        return s.say(s.pick(("you", "you", "we")), "does", rest, meaning, rest)
    subject, verb, finite = s.pick(SHOWN)
    a = s.a(key)
    return s.say(subject, "does", f"{verb} {a}", meaning, f"{finite} {a}")


HERE = (*IN_VIEW, "at the desk", "at the table", "sitting here", "in front of the camera",
        "sitting at the desk", "sitting there")
SEATS = ("the chair", "the place", "the seat", "the room", "the office chair")
EMPTY = ("empty", "empty", "vacant", "unoccupied", "free", "deserted")
TAKEN = ("taken", "occupied", "in use", "not empty", "not free")
LEFT_ALL = (("has", "left"), ("is", "gone"), ("has", "gone"), ("is", "away"))


def person(s: Speaker) -> Clause:
    """Say that somebody is there."""
    meaning, roll = fact("person"), s.rng.random()
    if s.negator == "absent":
        word = s.pick(GONE)
        s.tags.add(f"negation:{word}|{s.kind}")
        return s.say(s.pick(DEFINITE[:7]), "is", word, ~meaning, denied=True)
    if s.negator == "no" and roll < 0.6:
        word = s.pick(NO_ONE[:2])
        s.tags.add(f"negation:{word}|{s.kind}")
        if roll < 0.25:
            return s.say("there", "is", word + s.pick(WHERE), ~meaning, denied=True)
        return s.say(word, "is", s.pick(HERE), ~meaning, denied=True)
    if s.negator == "no" and roll < 0.75:
        place, word = s.pick(SEATS), s.pick(EMPTY)
        s.tags.add(f"negation:{place} {word}|{s.kind}")
        return s.say(place, "is", word, ~meaning, denied=True)
    if s.negator == "no" and roll < 0.83:
        who, (aux, rest) = s.pick(("everyone", "everybody")), s.pick(LEFT_ALL)
        s.tags.add(f"negation:{who} {aux} {rest}|{s.kind}")
        return s.say(who, aux, rest, ~meaning, denied=True)
    if s.negator or roll < 0.4:
        return presence(s, "person", meaning)
    if roll < 0.46:
        return s.say(s.pick(SEATS), "is", s.pick(TAKEN), meaning)
    if roll < 0.52:
        verb, place = s.pick(("sit", "stand")), s.pick(("here", "there", "at the desk",
                                                        "at the table", "in the room"))
        return s.say(s.pick(INDEFINITE), "does", f"{verb} {place}", meaning, f"{verb}s {place}")
    if roll < 0.8:
        return s.say(s.pick((*INDEFINITE, *DEFINITE[:7])), "is", s.pick(HERE), meaning)
    who = s.pick(("someone", "somebody", "anyone", "anybody"))
    return s.say("there", "is", who + s.pick(WHERE), meaning)


STANDING = ("lie", "stand", "sit", "rest")
LYING = ("on", "on", "lying on", "standing on", "sitting on", "resting on", "placed on")


def on_desk(s: Speaker, key: str, meaning: Meaning) -> Clause:
    """Say that something is on the desk."""
    roll, desk = s.rng.random(), s.the("desk")
    if s.negator == "no":
        noun = s.noun(key)
        if roll < 0.4:
            s.tags.add(f"negation:there is no|{s.kind}")
            return s.say("there", "is", f"no {noun} on {desk}", ~meaning, denied=True)
        if roll < 0.65:
            s.tags.add(f"negation:no|{s.kind}")
            return s.say(f"no {noun}", "is", f"{s.pick(LYING)} {desk}", ~meaning, denied=True)
        if roll < 0.8:
            s.tags.add(f"negation:have no|{s.kind}")
            return s.say(desk, "does", f"have no {noun} on it", ~meaning, f"has no {noun} on it",
                         denied=True)
        word = s.pick(("without", "lack", "free of"))
        s.tags.add(f"negation:{word}|{s.kind}")
        a = with_article(noun)
        if word == "lack":
            return s.say(desk, "does", f"lack {a}", ~meaning, f"lacks {a}", denied=True)
        return s.say(desk, "is", f"{word} {a}", ~meaning, denied=True)
    if s.negator == "absent":
        word = s.pick(("missing from", "absent from", "gone from", "nowhere on"))
        s.tags.add(f"negation:{word}|{s.kind}")
        return s.say(s.the(key), "is", f"{word} {desk}", ~meaning, denied=True)
    if roll < 0.3:
        return s.say("there", "is", f"{s.a(key)} on {desk}", meaning)
    if roll < 0.8:
        return s.say(s.one(key), "is", f"{s.pick(LYING)} {desk}", meaning)
    a = s.a(key)
    if roll < 0.86:
        return s.say(desk, "does", f"have {a} on it", meaning, f"has {a} on it")
    if roll < 0.93:
        subject, verb = s.one(key), s.pick(STANDING)
        return s.say(subject, "does", f"{verb} on {desk}", meaning, f"{verb}s on {desk}")
    return s.say("you", "can", f"{s.pick(SEE)} {a} on {desk}", meaning)


HOLDING = (("holding", "holds"), ("holding", "holds"), ("carrying", "carries"),
           ("gripping", "grips"), ("grasping", "grasps"))
BY = ("", " by the person", " by someone", " by somebody")
HANDS = ("the person's hand", "someone's hand", "somebody's hand", "a hand", "his hand",
         "her hand", "their hand", "the person's hands")


def holding(s: Speaker, key: str, meaning: Meaning) -> Clause:
    """Say that somebody holds something."""
    roll = s.rng.random()
    if s.negator in ("no", "absent"):
        if s.negator == "no" and roll < 0.4:
            who, (ing, finite) = s.who(), s.pick(HOLDING)
            a = s.a(key)
            return s.say(who, "is", f"{ing} {a}", ~meaning, denied=True)
        noun = s.noun(key)
        if roll < 0.65:
            s.tags.add(f"negation:holding no|{s.kind}")
            return s.say(s.pick(DEFINITE), "is", f"{s.pick(HOLDING)[0]} no {noun}", ~meaning,
                         denied=True)
        if roll < 0.8:
            s.tags.add(f"negation:there is no|{s.kind}")
            return s.say("there", "is", f"no {noun} in {s.pick(HANDS)}", ~meaning, denied=True)
        s.tags.add(f"negation:no|{s.kind}")
        return s.say(f"no {noun}", "is", s.pick(("being held", "held" + s.pick(BY[1:]),
                                                 f"in {s.pick(HANDS)}")), ~meaning, denied=True)
    if roll < 0.5:
        who, (ing, finite), it = s.who(), s.pick(HOLDING), s.one(key)
        plain = who != "they" and s.rng.random() < 0.4
        return s.say(who, "is", f"{ing} {it}", meaning, f"{finite} {it}" if plain else "")
    if roll < 0.62:
        who, a, hand = s.who(), s.a(key), s.pick(("his hand", "her hand", "their hand", "hand"))
        has = "have" if who == "they" else "has"
        return s.say(who, "does", f"have {a} in {hand}", meaning, f"{has} {a} in {hand}")
    if roll < 0.82:
        return s.say(s.one(key), "is", s.pick(("being held", "held", "carried", "being carried"))
                     + s.pick(BY), meaning)
    if roll < 0.92 or s.negator:
        return s.say(s.one(key), "is", f"in {s.pick(HANDS)}", meaning)
    return s.say("there", "is", f"{s.a(key)} in {s.pick(HANDS)}", meaning)


def held(s: Speaker) -> Clause:
    """Say that somebody holds something, whatever it is, or has empty hands."""
    meaning, ing = fact("held"), s.pick(HOLDING)[0]
    if s.negator == "absent":
        s.tags.add(f"negation:empty|{s.kind}")
        if s.rng.random() < 0.5:
            return s.say(s.pick(DEFINITE), "is", "empty-handed", fact("empty_handed"), denied=True)
        hands = s.pick(("the person's hands", "his hands", "her hands", "their hands"))
        return s.say(hands, "are", s.pick(("empty", "free")), fact("empty_handed"), denied=True)
    if s.negator == "no":
        if s.rng.random() < 0.5:
            s.tags.add(f"negation:nothing|{s.kind}")
            return s.say(s.pick(DEFINITE), "is", f"{ing} nothing", ~meaning, denied=True)
        return s.say(s.who(), "is", f"{ing} anything", ~meaning, denied=True)
    thing = s.pick(("something", "something", "anything", "a thing", "an object"))
    return s.say(s.who(), "is", f"{ing} {thing}", meaning)


LEFT = ("to the {} of", "{} of", "on the {} of", "on the {} side of", "further {} than",
        "to the {} side of", "farther {} than")
BESIDE = ("next to", "beside", "close to", "near", "right beside", "right next to")


def relation(s: Speaker, one: str, other: str, meaning: Meaning, words: str) -> Clause:
    """Say how two things lie to each other; `words` ends in what the other follows."""
    if s.negator in ("no", "absent"):
        s.tags.add(f"negation:no|{s.kind}")
        return s.say(f"no {s.noun(one)}", "is", f"{words} {s.the(other)}", ~meaning, denied=True)
    roll = s.rng.random()
    if roll < 0.12 and not s.negator:
        return s.say("there", "is", f"{s.a(one)} {words} {s.the(other)}", meaning)
    if roll < 0.24:
        rest = f"{s.pick(STANDING)} {words} {s.the(other)}"
        finite = rest.replace(" ", "s ", 1)
        return s.say(s.one(one), "does", rest, meaning, finite)
    posture = "standing " if roll < 0.28 else "sitting " if roll < 0.3 else ""
    return s.say(s.one(one), "is", f"{posture}{words} {s.the(other)}", meaning)


SIDES = ("on the {}", "on the {} side", "in the {} half", "on the {} half", "at the {}",
         "in the {} half of the picture", "on the {} side of the picture",
         "on the {} side of the image", "in the {} half of the image", "to the {}")


def predicate(s: Speaker, rest: str, meaning: Meaning, one: str = "person") -> Clause:
    """Say something of the person, or of a thing."""
    if one != "person":
        if s.negator in ("no", "absent"):
            s.tags.add(f"negation:no|{s.kind}")
            return s.say(f"no {s.noun(one)}", "is", rest, ~meaning, denied=True)
        return s.say(s.the(one), "is", rest, meaning)
    if s.negator in ("no", "absent"):
        s.negator = "no"
        who = s.who()
        if s.rng.random() < 0.25:
            return s.say("there", "is", f"{who} {rest}", ~meaning, denied=True)
        return s.say(who, "is", rest, ~meaning, denied=True)
    roll, finite = s.rng.random(), FINITE.get(rest)
    if roll < 0.1 and not s.negator:
        who = s.pick(("someone", "somebody", "anyone", "a person", "anybody"))
        return s.say("there", "is", f"{who} {rest}", meaning)
    who = s.who()
    if finite and roll < 0.35:
        verb, _, tail = finite.partition(" ")
        ending = "" if who == "they" else "es" if verb in ("go", "approach") else "s"
        return s.say(who, "does", finite, meaning, f"{verb}{ending} {tail}".rstrip())
    return s.say(who, "is", rest, meaning)


ACTS = {
    "typing": ("typing", "typing on the laptop", "working on the laptop", "using the keyboard",
               "typing on the computer", "using the laptop", "working on the computer",
               "typing on the keyboard"),
    "drinking": ("drinking", "drinking from a cup", "taking a sip", "having a drink",
                 "drinking from the mug", "sipping from a cup", "sipping"),
    "on phone": ("on the phone", "talking on the phone", "making a phone call", "on a phone",
                 "speaking on the phone", "making a call", "phoning", "calling someone",
                 "talking on the mobile"),
    "reading": ("reading", "reading a book", "looking at a book", "reading something",
                "reading a novel", "looking into a book"),
}
MOVES = {
    "approaching": ("approaching", "coming closer", "moving toward the camera", "getting closer",
                    "coming nearer", "walking toward the camera", "moving closer", "drawing near",
                    "coming toward us"),
    "receding": ("receding", "moving away", "walking away from the camera", "getting farther away",
                 "walking away", "going away", "backing away", "moving away from the camera",
                 "moving away from us"),
    "left": ("moving left", "moving to the left", "walking to the left", "going left",
             "walking left", "heading left", "going to the left", "heading to the left"),
    "right": ("moving right", "moving to the right", "walking to the right", "going right",
              "walking right", "heading right", "going to the right", "heading to the right"),
}
MOVING = ("moving", "walking", "moving around", "walking around", "in motion", "on the move")
STILL = ("still", "standing still", "staying in place", "motionless", "keeping still",
         "standing in place")
NEAR = ("close", "near", "close to the camera", "near the camera", "close to us", "nearby")
FAR = ("far away", "far from the camera", "far away from the camera", "distant", "far from us",
       "a long way away")


#: The same with a finite verb: "does the person move left", "the person moves left".
FINITE = {
    "typing": "type", "typing on the laptop": "type on the laptop", "drinking": "drink",
    "drinking from a cup": "drink from a cup", "talking on the phone": "talk on the phone",
    "reading": "read", "reading a book": "read a book",
    "working on the laptop": "work on the laptop",
    "using the keyboard": "use the keyboard", "looking at a book": "look at a book",
    "approaching": "approach", "coming closer": "come closer", "getting closer": "get closer",
    "moving toward the camera": "move toward the camera", "moving closer": "move closer",
    "walking toward the camera": "walk toward the camera", "moving away": "move away",
    "walking away": "walk away", "going away": "go away", "moving left": "move left",
    "moving to the left": "move to the left", "walking to the left": "walk to the left",
    "going left": "go left", "moving right": "move right",
    "moving to the right": "move to the right",
    "walking to the right": "walk to the right", "going right": "go right", "moving": "move",
    "walking": "walk", "moving around": "move around", "walking around": "walk around",
    "standing still": "stand still", "staying in place": "stay in place",
}


def door(s: Speaker) -> Clause:
    """Say that the door is open or closed."""
    subject = s.pick(("the door", "the door", "the door", "the door behind them", "a door",
                      "the door in the back", "the door behind the desk"))
    meaning = fact("door_open")
    if s.negator == "absent" or (not s.negator and s.rng.random() < 0.4):
        return s.say(subject, "is", s.pick(("closed", "shut")), ~meaning, denied=True)
    if s.negator == "no":
        s.tags.add(f"negation:there is no|{s.kind}")
        return s.say("there", "is", "no open door" + s.pick(WHERE), ~meaning, denied=True)
    if s.negator and s.rng.random() < 0.4:
        return s.say(subject, "is", s.pick(("closed", "shut")), ~meaning)
    if not s.negator and s.rng.random() < 0.2:
        if s.rng.random() < 0.3:
            return s.say("there", "is", "a closed door" + s.pick(WHERE), ~meaning, denied=True)
        return s.say("there", "is", "an open door" + s.pick(WHERE), meaning)
    if not s.negator and s.rng.random() < 0.12:
        return s.say(subject, "has", "been left open", meaning)
    return s.say(subject, "is", s.pick(("open", "open", "ajar", "standing open", "wide open",
                                        "opened")), meaning)


def company(s: Speaker) -> Clause:
    """Say that there is a second person, or that the first is alone."""
    meaning = fact("second_person")
    if s.negator == "absent":
        s.tags.add(f"negation:alone|{s.kind}")
        return s.say(s.pick(DEFINITE), "is",
                     s.pick(("alone", "on their own", "all alone", "the only person")),
                     fact("people==1"), denied=True)
    if s.negator == "no":
        if s.rng.random() < 0.5:
            word = s.pick(("nobody else", "no one else"))
            s.tags.add(f"negation:{word}|{s.kind}")
        else:
            word = f"no {s.pick(('second', 'other'))} {s.noun('person')}"
            s.tags.add(f"negation:no|{s.kind}")
        if s.rng.random() < 0.5:
            return s.say("there", "is", word + s.pick(WHERE), ~meaning, denied=True)
        return s.say(word, "is", s.pick(HERE), ~meaning, denied=True)
    other = s.pick(("a second", "another", "someone else", "somebody else", "anyone else"))
    if other in ("a second", "another"):
        other = f"{other} {s.noun('person')}"
    if s.rng.random() < 0.5:
        return s.say("there", "is", other + s.pick(WHERE), meaning)
    return s.say(other, "is", s.pick(HERE), meaning)


def counting(rng: np.random.Generator) -> Clause:
    """Say how many things or people there are."""
    s = Speaker(rng, "counting")
    people = bool(rng.random() < 0.35)
    what = "people" if people else "things"
    k = int(rng.integers(0, 3 if people else MOST_COUNTED + 1))
    form, op = COUNTS[int(rng.integers(len(COUNTS)))]
    least, n = (k, k) if op == ">=" else (k + 1, k)
    if op == ">=":
        k = max(1, k)
        least, n = k, k if "more than" not in form and "above" not in form else k - 1
        meaning = fact(f"{what}>={least}")
    elif op == "<=":
        k = min(k, 1 if people else MOST_COUNTED - 1)
        meaning = ~fact(f"{what}>={k + 1}")
        n = k + 1 if "than" in form and "no more" not in form or "below" in form else k
    else:
        meaning, n = fact(f"{what}=={k}"), k
    word = str(n) if rng.random() < 0.15 else NUMBERS[n]
    amount = form.format(word)
    noun = s.noun("person" if people else "thing")
    plural = "people" if noun == "person" else noun + "s"
    if n != 1 or "more" in form or "fewer" in form.split()[-1]:
        noun = plural
    place = s.pick(WHERE) if people else f" on {s.the('desk')}"
    s.tags.add(f"count:{form}|{noun}|{min(n, 3)}")
    aux = "is" if noun != plural else "are"
    roll = rng.random()
    if roll < 0.2 and not people:
        desk = place.removeprefix(" on ")
        return s.say(desk, "does", f"have {amount} {noun} on it", meaning,
                     f"has {amount} {noun} on it")
    if roll < 0.3:
        return s.say("you", "can", f"{s.pick(SEE)} {amount} {noun}{place}", meaning)
    if roll < 0.34 and not people:
        return s.say(place.removeprefix(" on "), "does", f"hold {amount} {noun}", meaning,
                     f"holds {amount} {noun}")
    if roll < 0.4:
        return s.say(f"the number of {plural}{place}", "is", amount, meaning)
    return s.say("there", aux, f"{amount} {noun}{place}", meaning)


COUNTS = (("at least {}", ">="), ("{} or more", ">="), ("more than {}", ">="),
          ("no fewer than {}", ">="), ("not less than {}", ">="), ("above {}", ">="),
          ("at most {}", "<="), ("{} or fewer", "<="), ("fewer than {}", "<="),
          ("no more than {}", "<="), ("less than {}", "<="), ("below {}", "<="),
          ("exactly {}", "=="), ("just {}", "=="), ("only {}", "=="), ("precisely {}", "=="),
          ("{}", "=="))


def empty_desk(rng: np.random.Generator) -> Clause:
    """Say that there is something, or nothing, on the desk."""
    s = Speaker(rng, "counting")
    on = f"on {s.the('desk')}"
    word = s.pick(("something", "anything", "nothing", "at least something"))
    meaning = fact("things>=1") if word != "nothing" else fact("things==0")
    if rng.random() < 0.5:
        return s.say("there", "is", f"{word} {on}", meaning)
    return s.say(word, "is", f"{s.pick(LYING)} {on.removeprefix('on ')}", meaning)


def only_thing(rng: np.random.Generator) -> Clause:
    """Say that a thing is alone on the desk."""
    s = Speaker(rng, "counting")
    key = OBJECTS[int(rng.integers(len(OBJECTS)))]
    thing, desk = s.noun("thing"), s.the("desk")
    s.tags.add(f"count:only|{thing}|1")
    meaning = fact(f"on_desk:{key}") & fact("things==1")
    return s.say(s.the(key), "is", f"the only {thing} on {desk}", meaning)


def person_predicate(s: Speaker, kinds: Sequence[str] | None = None) -> tuple[str, Meaning, str]:
    """Draw what a person may be or do: words behind "is", the meaning and its kind."""
    kind = s.pick(kinds or ("holding", "doing", "motion", "moving", "side", "distance"))
    if kind == "holding":
        key = s.pick(("cup", "phone", "pen", "book"))
        return f"{s.pick(HOLDING)[0]} {s.one(key)}", fact(f"held:{key}"), kind
    if kind == "doing":
        act = s.pick(tuple(ACTS))
        return s.pick(ACTS[act]), fact(f"doing:{act}"), kind
    if kind == "motion":
        way = s.pick(tuple(MOVES))
        return s.pick(MOVES[way]), fact(f"motion:{way}"), kind
    if kind == "moving":
        still = s.rng.random() < 0.4
        return (s.pick(STILL), fact("still"), kind) if still else (
            s.pick(MOVING), fact("moving"), kind)
    if kind == "side":
        side = s.pick(("left", "right"))
        return s.pick(SIDES).format(side), fact(f"side:{side}:person"), kind
    near = s.rng.random() < 0.5
    return s.pick(NEAR if near else FAR), fact("near" if near else "far"), "distance"


def _thing(s: Speaker) -> str:
    return s.pick(OBJECTS)


def _relation(s: Speaker, one: str | None = None) -> Clause:
    pool = [*OBJECTS, "person"]
    first = one or s.pick(pool)
    other = s.pick([name for name in pool if name != first])
    if one is None and s.kind == "beside":
        return relation(s, first, other, fact(f"beside:{first}:{other}"), s.pick(BESIDE))
    side = s.pick(("left", "right"))
    pair = (first, other) if side == "left" else (other, first)
    return relation(s, first, other, UNKNOWN if one else fact("left:{}:{}".format(*pair)),
                    s.pick(LEFT).format(side))


def _side(s: Speaker) -> Clause:
    one, side = _thing(s), s.pick(("left", "right"))
    return predicate(s, s.pick(SIDES).format(side), fact(f"side:{side}:{one}"), one)


def _present(s: Speaker) -> Clause:
    key = s.pick((*OBJECTS, "book"))
    return presence(s, key, fact(f"present:{key}"))


def _placed(s: Speaker) -> Clause:
    key = _thing(s)
    return on_desk(s, key, fact(f"on_desk:{key}"))


def _holding(s: Speaker) -> Clause:
    key = s.pick(("cup", "phone", "pen", "book"))
    return holding(s, key, fact(f"held:{key}"))


def _of_person(s: Speaker) -> Clause:
    return predicate(s, *person_predicate(s, (s.kind,))[:2])


def _person_side(s: Speaker) -> Clause:
    return predicate(s, *person_predicate(s, ("side",))[:2])


KINDS: dict[str, tuple[float, Callable[[Speaker], Clause]]] = {
    "presence": (3.0, _present), "person": (2.0, person), "desk": (2.0, _placed),
    "holding": (2.2, _holding), "held": (0.6, held), "relation": (2.6, _relation),
    "beside": (0.8, _relation), "side": (1.2, _side), "person_side": (0.6, _person_side),
    "distance": (1.4, _of_person), "door": (1.4, door), "doing": (1.8, _of_person),
    "motion": (4.0, _of_person), "moving": (1.2, _of_person), "company": (1.2, company),
}
_NAMES = tuple(KINDS)
_SHARES = np.array([share for share, _ in KINDS.values()])


def clause(rng: np.random.Generator, negator: str = "", kind: str | None = None) -> Clause:
    """Draw a clause of any kind, denied in the way of `negator` ("" is not denied)."""
    kind = kind or _NAMES[int(rng.choice(len(_NAMES), p=_SHARES / _SHARES.sum()))]
    return KINDS[kind][1](Speaker(rng, kind, negator))


def strange(rng: np.random.Generator, held_out: Callable[[str], bool], invented: bool) -> Clause:
    """Draw a clause about what the desk cannot show; `held_out` says which words are left out.

    invented: the word may be one that no language has.
    """
    s = Speaker(rng, "unanswerable", str(rng.choice(("", "", "", "", "not", "no"))))

    def word(words: Sequence[str]) -> str:
        while True:
            if invented and rng.random() < 0.3:
                return "".join(s.pick(SYLLABLES) for _ in range(int(rng.integers(2, 4))))
            found = s.pick(words)
            if not held_out(found):
                return found

    kind = s.pick(("presence", "presence", "desk", "holding", "relation", "be", "be", "do"))
    if kind == "be":
        return predicate(s, word(ADJECTIVES), UNKNOWN,
                         s.pick(("person", "person", "cup", "laptop", "door", "desk", "phone")))
    if kind == "do":
        return predicate(s, word(VERBS), UNKNOWN)
    noun = word(NOUNS)
    if kind == "relation":
        return _relation(s, noun)
    return {"presence": presence, "desk": on_desk, "holding": holding}[kind](s, noun, UNKNOWN)


SYLLABLES = ("ba", "blo", "cri", "da", "fen", "gor", "hu", "jib", "ka", "lom", "mer", "nu", "pon",
             "quil", "rad", "snu", "tas", "ul", "vex", "wim", "yor", "zet", "tri", "sol", "mib")
