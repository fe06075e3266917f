"""The third training stage: words are added without changing what was known, and a run resumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the train extra (PyTorch)")
pytest.importorskip("transformers")

from vlm_decisions.engine.prompt import PromptTemplate  # noqa: E402
from vlm_decisions.lab.sim_desk import forward, stage_questions  # noqa: E402
from vlm_decisions.lab.sim_desk.architecture import fresh_model  # noqa: E402
from vlm_decisions.lab.sim_desk.checkpoints import Run  # noqa: E402
from vlm_decisions.lab.sim_desk.corpus import families  # noqa: E402
from vlm_decisions.lab.sim_desk.language import Asker, DeskClip  # noqa: E402
from vlm_decisions.lab.sim_desk.margin_notes import MarginNotes, literals, scene_of  # noqa: E402
from vlm_decisions.lab.sim_desk.model import adopt, load_stages, train_model  # noqa: E402
from vlm_decisions.lab.sim_desk.scenes import moment  # noqa: E402
from vlm_decisions.lab.sim_desk.stage_language import draw_clips  # noqa: E402
from vlm_decisions.lab.sim_desk.stage_questions import (  # noqa: E402
    Asked,
    Examiner,
    grown_model,
    soft_loss,
    train_questions,
)
from vlm_decisions.lab.sim_desk.strips import GROUPS, EncodedStrip  # noqa: E402
from vlm_decisions.lab.sim_desk.workers import Companion  # noqa: E402
from vlm_decisions.sim.facts import UNKNOWN, fact, facts_of  # noqa: E402
from vlm_decisions.sim.world import World  # noqa: E402


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return the second stage's tokenizer and model, the grown ones, and their folder."""
    folder = tmp_path_factory.mktemp("run")
    lines, stage_questions.LINES = stage_questions.LINES, 400
    before = fresh_model()
    grown = grown_model(*before, folder)
    yield SimpleNamespace(before=before, grown=grown, folder=folder)
    stage_questions.LINES = lines


@pytest.fixture(scope="module")
def clips():
    rng = np.random.default_rng(0)
    found = []
    for seed in range(6):
        world = World(seed)
        moments = tuple(replace(moment(world, 0.3 + 0.25 * k), since_s=1.0) for k in range(GROUPS))
        features = rng.normal(0, 1, (GROUPS, 20, 128)).astype(np.float16)
        strip = EncodedStrip(seed, (160, 128), features, moments)
        found.append(DeskClip(strip, (3, 4)))
    return found


def test_known_texts_keep_their_ids(small):
    old, new = (PromptTemplate(tokenizer) for tokenizer in (small.before[0], small.grown[0]))
    moved = {small.before[0].convert_tokens_to_ids(t): small.grown[0].convert_tokens_to_ids(t)
             for t in small.before[0].get_vocab()}
    for family in families():
        for text in family.texts:
            ids = old.question(text, family.options).ids
            assert [moved[k] for k in ids] == new.question(text, family.options).ids
    assert len(small.grown[0]) > len(small.before[0]) + 100
    assert len(new._plain_ids(" mug")) == 1 < len(new._plain_ids(" giraffe"))


def test_known_texts_keep_their_answers(small):
    said = []
    for tokenizer, model in (small.before, small.grown):
        text, template = model.model.language_model, PromptTemplate(tokenizer)
        ids = torch.tensor([[*template.header_ids, *template.question("Is there a cup?").ids]])
        with torch.no_grad():
            at = torch.arange(ids.shape[1]).expand(3, -1)
            every, _ = forward.prefix(text, text.embed_tokens(ids), at,
                                      torch.tensor([ids.shape[1] - 1]))
            rows = text.embed_tokens.weight[[template.yes_id, template.no_id]]
            said.append(text.norm(every[-1])[0, 0] @ rows.T)
    assert torch.allclose(*said, atol=1e-5)


def test_a_run_keeps_its_words(small, monkeypatch):
    monkeypatch.setattr(stage_questions, "LINES", 20)
    again = grown_model(*small.before, small.folder)
    assert again[0].get_vocab() == small.grown[0].get_vocab()


def test_questions_have_the_answers_of_their_scene(small, clips):
    template = PromptTemplate(small.grown[0])
    examiner, rng = Examiner(template), np.random.default_rng(1)
    soft, lengths = [], set()
    for clip in clips * 8:
        for item in examiner.draw(rng, clip, 24, 30, 15):
            lengths.add(len(item.ids))
            assert (item.soft is None) == (item.meaning is None)
            if item.soft:
                yes = item.soft[0]
                assert item.right == (template.yes_id if yes >= 0.5 else template.no_id)
                assert 2 * yes - 1 == item.meaning.value(facts_of(scene_of(clip.now)))
                soft.append(yes)
    assert min(lengths) > 15 and max(lengths) <= 30
    assert set(soft) == {0.0, 0.5, 1.0}
    assert 0.35 < np.mean([s for s in soft if s != 0.5]) < 0.65
    assert 0.03 < np.mean(np.array(soft) == 0.5) < 0.15


def test_loss_of_what_cannot_be_known_is_least_in_the_middle():
    def loss(yes, answer, right):
        logits = torch.tensor([[[yes, 0.0, -9.0]]])
        return float(soft_loss(logits, [[Asked([], right, answer)]], (0, 1)))

    assert loss(0.0, (0.5, 0.5), 0) < min(loss(2.0, (0.5, 0.5), 0), loss(-2.0, (0.5, 0.5), 0))
    assert loss(4.0, (1.0, 0.0), 0) < loss(0.0, (1.0, 0.0), 0) < loss(-4.0, (1.0, 0.0), 0)
    assert loss(4.0, None, 0) < loss(4.0, None, 1)


def test_a_denied_pair_rests_on_denied_facts():
    a, b = fact("person"), fact("door_open")
    assert literals(a & ~b) == ({("person", True), ("door_open", False)}, {"and"})
    assert literals(~(a & ~b)) == ({("person", False), ("door_open", True)}, {"or"})
    assert literals(~UNKNOWN) == (set(), {"unknown"})


def test_notes_are_learnt_where_they_are_known(clips):
    """Fitted to states that tell them: facts of a shuffled clip's motion are never asked for."""
    notes = MarginNotes(128, scene_of(clips[0].now))
    at = notes.names.index("moving")
    mixed = [replace(clip, groups=(3, 4, 5, 6), shuffled=True) for clip in clips]
    hidden = torch.randn(len(clips), 4, 128, requires_grad=True)
    for drawn, moves in ((mixed, False), ([replace(c, shuffled=False) for c in mixed], True)):
        notes.zero_grad()
        notes.scene_loss(hidden, drawn).backward()
        assert bool(notes.facts.bias.grad[at] != 0) == moves
        assert notes.facts.bias.grad[notes.names.index("person")] != 0
    meanings = [fact("person"), ~fact("person"), None, fact("door_open") & fact("person")]
    states = torch.randn(len(meanings), 128)
    optimiser = torch.optim.Adam(notes.parameters(), 0.1)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        losses.append(notes.asked_loss(states, meanings))
        losses[-1].backward()
        optimiser.step()
    assert float(losses[-1]) < 0.05 * float(losses[0])
    # What a question that has no meaning of the grammar asks is not taught.
    assert torch.equal(notes.asked_loss(states, meanings),
                       notes.asked_loss(states.index_fill(0, torch.tensor([2]), 9.0), meanings))


def test_a_run_learns_saves_and_goes_on(small, clips, monkeypatch, tmp_path):
    class Store(list):
        strips = property(lambda self: [c.strip for c in clips])

        def poll(self, wait_for=0):
            pass

        def close(self):
            pass

    monkeypatch.setattr(stage_questions, "StripStore", lambda *a: Store())
    monkeypatch.setattr(stage_questions, "question_clips", lambda *a: clips[:2])
    monkeypatch.setattr(stage_questions, "step_clips", lambda *a: clips[:2])
    monkeypatch.setattr(stage_questions, "QUESTIONS", 4)
    monkeypatch.setattr(Asker, "draw", lambda self, rng, clip, n, choice: [
        (self.tokens("Is there a cup?")[0], self.template.yes_id)] * n)
    tokenizer, model = small.grown
    run = Run(tmp_path)
    train_questions(model, tokenizer, run, 2, 6)
    first = {k: v.clone() for k, v in model.model.language_model.state_dict().items()}
    assert run.has("questions")
    other = grown_model(*small.before, small.folder)[1]
    train_questions(other, tokenizer, Run(tmp_path), 2, 6)  # nothing left to do: loaded
    assert all(torch.equal(v, first[k]) for k, v in other.model.language_model.state_dict().items())
    train_questions(other, tokenizer, Run(tmp_path), 3, 6)
    assert any(not torch.equal(v, first[k])
               for k, v in other.model.language_model.state_dict().items())


def test_a_companion_hands_over_gradients():
    """What it hands over is the gradient at the parameters as they are stepped."""
    x = torch.nn.Parameter(torch.tensor([4.0]))

    def gradient():
        return [2 * x.detach()]

    companion, taken = Companion([x], gradient), []
    try:
        while len(taken) < 30:
            if companion.take(lambda found: taken.append(float(found[0]))):
                x.data -= 0.1 * taken[-1]
    finally:
        companion.close()
    assert taken[0] == 8.0 and abs(taken[-1]) < 0.5 * taken[0]


def test_a_companion_that_dies_is_an_error():
    def gradient():
        raise SystemExit(1)

    companion = Companion([torch.nn.Parameter(torch.zeros(1))], gradient)
    companion._process.join()
    with pytest.raises(RuntimeError, match="has died"):
        companion.take(lambda found: None)


def test_families_that_the_grammar_lacks_are_refused(tmp_path):
    with pytest.raises(ValueError, match="negations.*it has frame"):
        train_model(tmp_path / "run", tmp_path / "out", without=("negations",))


def test_a_finished_checkpoint_stands_for_the_first_stages(small, tmp_path):
    tokenizer, model = small.before
    model.save_pretrained(tmp_path / "done")
    adopt(tmp_path / "run", tmp_path / "done")
    loaded = load_stages(tmp_path / "run")[1].state_dict()
    assert all(torch.equal(v, loaded[k]) for k, v in model.state_dict().items())
    small.grown[1].save_pretrained(tmp_path / "grown")
    with pytest.raises(ValueError, match="vocabulary"):
        adopt(tmp_path / "other", Path(tmp_path / "grown"))


def test_clips_are_drawn_where_a_size_has_no_strip(clips):
    class Store(list):
        strips = property(lambda self: [c.strip for c in clips])
        backwards = strips

    store = Store(clips)
    rng = np.random.default_rng(3)
    assert all(c.strip.size == (160, 128) for _ in range(12) for c in draw_clips(rng, store, 2, 2))
