"""What the embedded model was taught: answers, tokens and pixels are those that run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from vlm_decisions.engine.pixels import PixelSettings, patches
from vlm_decisions.engine.prompt import PromptTemplate
from vlm_decisions.files.resources import package_dir, share_file
from vlm_decisions.lab.sim_desk import architecture, corpus, scenes
from vlm_decisions.lab.sim_desk.tokenizer import build_tokenizer
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World, truth_of

MODEL = package_dir() / "models" / "sim_desk"
QUESTIONS = list(QuestionBook.load(share_file("config", "questions", "desk.yaml")))


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(corpus.tokenizer_text(corpus.families()))


def test_answers_taught_are_the_worlds_truth():
    """Every shipped question is a wording of a family, with the world's own answer."""
    by_text = {text: f for f in corpus.families() for text in f.texts}
    asked = {q.id: by_text[q.text] for q in QUESTIONS}
    states = [segment.state for seed in range(40) for segment in Script.random(seed, 30.0).segments]
    for state in states:
        truth = truth_of(state, state.x)
        for name, family in asked.items():
            assert family.answer(state, state.x).lower() == truth[name], name


def test_no_wording_means_two_things():
    texts = [text for f in corpus.families() for text in f.texts]
    assert len(texts) == len(set(texts))


def test_the_shipped_tokenizer_is_the_one_trained_here_with_more_words(tokenizer):
    shipped = json.loads((MODEL / "tokenizer.json").read_text())
    trained = json.loads(tokenizer.backend_tokenizer.to_str())
    merges, added = trained["model"]["merges"], {t["content"] for t in trained["added_tokens"]}
    own = {word: k for word, k in trained["model"]["vocab"].items() if word not in added}
    assert own.items() <= shipped["model"]["vocab"].items()
    assert shipped["model"]["merges"][:len(merges)] == merges
    assert {t["content"] for t in shipped["added_tokens"]} == added
    assert "\u0120ballpoint" in shipped["model"]["vocab"] and "\u0120ballpoint" not in own


def test_questions_are_short_and_answers_are_tokens(tokenizer):
    template = PromptTemplate(tokenizer)
    for question in QUESTIONS:
        tokens = template.question(question.text, question.options)
        assert len(tokens.ids) - tokens.trunk <= 45, question.id
        assert len(set(tokens.answer_ids)) == len(question.options or "yn")


@pytest.mark.parametrize("size", list(scenes.RENDER_SIZES))
def test_training_pixels_are_the_engines(size):
    """Both resize and cut a camera frame to the same numbers, at every size trained on."""
    settings = PixelSettings(pixel_budget=architecture.PIXEL_BUDGET,
                             min_pixels=architecture.MIN_PIXELS)
    for camera in scenes.RENDER_SIZES[size]:
        world = World(5)
        plan = scenes.Plan(world, camera, np.array([[1.0, 1.125]]))
        trained = scenes.patches(scenes.draw_strip(plan, size).frames)[0]
        running, grid = patches([world.render(1.0, *camera), world.render(1.125, *camera)],
                                settings)
        assert (grid[1] * 16, grid[0] * 16) == size
        assert np.abs(trained - running).max() < 1e-6


def test_the_checkpoint_is_small_enough_to_ship():
    assert sum(f.stat().st_size for f in MODEL.iterdir()) <= 8_000_000
