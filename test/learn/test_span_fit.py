"""Fitting labelled spans: what is learned, and all that must not be."""

from dataclasses import replace

import numpy as np
import pytest

from vlm_decisions.frames import NS
from vlm_decisions.learn.span_fit import (
    LEAST_A_SIDE,
    LabelledSpan,
    by_guessing,
    constant,
    fit_spans,
    folds,
    together,
)
from vlm_decisions.runtime.learned import Learned

DIM, LOOKS = 24, 3
NOTHING = np.zeros((LOOKS, 0))  # no colours


def spans(count, seed=0, *, z=lambda sign, rng: 0.0, lean=0.0, flipped=0.0):
    """Return spans, both sides alike. `z`: of a span's side (1, -1); `lean`: of its features.

    `flipped`: share of labels that are wrong.
    """
    rng = np.random.default_rng([seed, count])
    direction = rng.normal(size=DIM)
    direction /= np.linalg.norm(direction)
    out = []
    for k in range(count):
        sign = 1 if k % 2 else -1
        picture = rng.normal(size=DIM) + sign * lean * direction
        mean = picture + 0.2 * rng.normal(size=(LOOKS, DIM))
        logits = z(sign, rng) + 0.2 * rng.normal(size=LOOKS)
        answer = int((sign < 0) != (rng.random() < flipped))
        out.append(LabelledSpan(answer, 10 * k * NS, (10 * k + 1) * NS, logits[:, None], mean,
                                mean + 1, NOTHING))
    return out


def biased(sign, rng):
    """Return the logit of an answer that ranks well and is never yes."""
    return 1.5 * sign - 4 + 0.7 * rng.normal()


def good(sign, rng):
    return 4.0 * sign + rng.normal()


def noise(sign, rng):
    return -3 + rng.normal()


def learned(fit):
    return Learned("q", "", "Is it?", (), (1.0, 0.0), fit.scale, fit.bias, fit.weight, fit.pooling,
                   "f00d", 1, "", fit.spans, {}, fit.before, fit.after)


def accuracy(of, fit):
    """Return the share of right looks in other spans, with a fit."""
    made = learned(fit)
    return np.mean([((made.logits(one.z, one.mean, one.max) <= 0) == one.answer).mean()
                    for one in of])


def test_an_answer_that_ranks_well_and_decides_badly_gets_another_scale_and_bias():
    fit = fit_spans(spans(24, z=biased))
    assert fit.refusal == "" and fit.scale > 0 and fit.bias[0] > 1
    assert fit.before.accuracy == pytest.approx(0.5, abs=0.05) and fit.after.accuracy > 0.85
    assert fit.after.log_loss < fit.before.log_loss - 0.5
    assert accuracy(spans(200, 9, z=biased), fit) > 0.9


def test_what_the_model_does_not_know_is_read_off_the_features():
    data = spans(24, z=noise, lean=6.0)
    fit = fit_spans(data)
    assert fit.refusal == "" and fit.weight.size and fit.after.accuracy > 0.9
    only_changes = fit_spans(data, head=False)
    assert only_changes.refusal == "" and only_changes.scale > 0 and only_changes.weight.size


def test_a_head_is_right_on_pictures_that_were_not_labelled():
    rng_spans = spans(224, z=noise, lean=6.0)
    fit = fit_spans(rng_spans[:24])
    assert accuracy(rng_spans[24:], fit) > 0.95


@pytest.mark.parametrize("count", (8, 10, 12, 16, 24))
@pytest.mark.parametrize("z", (noise, good), ids=("unsure", "sure"))
def test_random_labels_are_never_adopted(count, z):
    for seed in range(6):
        fit = fit_spans(spans(count, seed, z=z, flipped=0.5))
        assert fit.refusal, f"seed {seed}: {fit}"


def test_a_sure_model_with_random_labels_is_not_even_made_less_sure():
    """Its log loss would be far better; that is nothing that was learned."""
    for seed in range(6):
        fit = fit_spans(spans(40, seed, z=good, flipped=0.5))
        assert fit.before is None or fit.before.log_loss > 1.0
        assert "one answer for all" in fit.refusal or "chance" in fit.refusal, fit.refusal


@pytest.mark.parametrize("yes", (True, False))
def test_labels_of_one_side_are_never_adopted(yes):
    data = [one for one in spans(60, z=biased) if one.answer != yes]
    data += [one for one in spans(2 * LEAST_A_SIDE - 2, 1, z=biased) if one.answer == yes]
    fit = fit_spans(data)
    assert f"and {LEAST_A_SIDE} of each are needed" in fit.refusal and fit.before is None


def test_many_clicks_on_one_scene_are_one_span():
    data = spans(8, z=biased)
    clicks = [LabelledSpan(data[1].answer, data[1].start_ns + k * NS // 4,
                           data[1].start_ns + k * NS // 4, data[1].z[:1], data[1].mean[:1],
                           data[1].max[:1], NOTHING[:1]) for k in range(4, 30)]
    assert len(together([*data[:4], *clicks])) == 4
    assert fit_spans([*data[:4], *clicks]).spans == 4
    # The other answer, or a pause, ends a span.
    apart = [data[0], LabelledSpan(1 - data[0].answer, data[0].end_ns, data[0].end_ns + NS, *(
        getattr(data[0], name) for name in ("z", "mean", "max", "colours")))]
    assert len(together(apart)) == 2


def test_labels_that_are_sometimes_wrong_are_learned_from_all_the_same():
    fit = fit_spans(spans(40, 1, z=biased, flipped=0.08))
    assert fit.refusal == "" and accuracy(spans(200, 9, z=biased), fit) > 0.9


def test_a_good_answer_stays():
    for seed in range(4):
        fit = fit_spans(spans(30, seed, z=good))
        assert fit.refusal, fit


def test_what_is_in_use_stays_as_long_as_it_is_better_at_all():
    """And goes as soon as it is not."""
    weak = [spans(12, seed, z=lambda sign, rng: sign - 1 + rng.normal()) for seed in range(6)]
    fits = [(fit_spans(data), fit_spans(data, kept=True)) for data in weak]
    assert any("chance" in new.refusal and not kept.refusal for new, kept in fits), fits
    assert not any(kept.refusal for new, kept in fits if not new.refusal)
    assert fit_spans(spans(40, 2, z=good, flipped=0.5), kept=True).refusal


def test_spans_are_never_split_across_folds():
    answer = np.array([True] * 6 + [False] * 9)
    parts = list(folds(answer, 4))
    assert sorted(np.concatenate([out for _, out in parts])) == list(range(15))
    for into, out in parts:
        assert not set(into) & set(out) and 0 < answer[into].mean() < 1 and 0 < answer[out].mean()
    # Looks of a span are alike: were they split, random labels would count as known.
    fit = fit_spans(spans(16, 2, z=noise, flipped=0.5))
    assert fit.after.accuracy < 0.8


@pytest.mark.parametrize("bad", (np.nan, np.inf))
def test_numbers_that_are_not_finite_are_refused(bad):
    data = spans(12, z=biased)
    data[3].mean[0, 0] = bad
    assert "not finite" in fit_spans(data).refusal
    data = spans(12, z=biased)
    data[3].z[:] = np.inf
    assert "not finite" in fit_spans(data).refusal


def test_spans_that_a_learned_head_answered_can_only_make_a_head():
    data = spans(24, z=noise, lean=6.0)
    for one in data[-3:]:
        one.z[:] = np.nan
    fit = fit_spans(data)
    assert fit.refusal == "" and fit.scale == 0 and fit.weight.size
    assert "not asked" in fit_spans(data, head=False).refusal


def test_what_the_encoder_has_no_place_for_is_read_off_the_colours():
    rng = np.random.default_rng(0)
    data = [replace(one, colours=1 + 0.05 * rng.normal(size=(LOOKS, 12))
                    + (1 - one.answer) * np.eye(12)[3] * 0.4) for one in spans(14, z=noise)]
    fit = fit_spans(data)
    assert fit.refusal == "" and fit.pooling == "colours" and fit.after.accuracy > 0.99
    assert np.argmax(np.abs(fit.weight[0])) == 3
    # What features and colours tell in part each, they tell together.
    half = [replace(one, colours=1 + 0.05 * rng.normal(size=(LOOKS, 12)) + rng.normal(size=(1, 12))
                    + (1 - 2 * one.answer) * 1.2 * np.eye(12)[3])
            for one in spans(40, z=noise, lean=2.0)]
    both, alone = fit_spans(half), [fit_spans([replace(one, **gone) for one in half]) for gone in (
        {"colours": NOTHING}, {"mean": np.zeros((LOOKS, 1)), "max": np.zeros((LOOKS, 1))})]
    assert both.refusal == "" and both.pooling == "mean_max_colours"
    assert both.weight.shape == (1, 2 * DIM + 12)
    assert both.after.log_loss < min(one.after.log_loss for one in alone)
    assert fit_spans(spans(14, z=noise)).refusal


def test_an_answer_that_is_right_on_all_spans_does_not_change():
    """Though it could be surer, and features tell the same."""
    fit = fit_spans(spans(40, z=lambda sign, rng: 1.2 * sign, lean=6.0))
    assert fit.before.accuracy == 1.0 and "not be right more often" in fit.refusal
    assert fit.after.log_loss < fit.before.log_loss


def test_a_logit_of_any_size_can_be_moved():
    """The model is very sure, always of no, and still ranks well."""
    def sure(sign, rng):
        return 100 * sign - 400 + 30 * rng.normal()

    fit = fit_spans(spans(30, z=sure))
    assert fit.refusal == "" and accuracy(spans(200, 9, z=sure), fit) > 0.95


def test_where_one_answer_is_rare_saying_the_other_always_is_nothing_learned():
    rng = np.random.default_rng(1)
    for seed in range(4):
        data = spans(48, seed, z=lambda sign, rng: rng.normal())
        data = [one for one in data if one.answer or rng.random() < 0.25]
        fit = fit_spans(data)
        assert fit.refusal, fit
    assert constant((3, 3)) == pytest.approx(np.log(2)) and constant((1, 9)) < 0.33


def test_it_rests_between_short_pieces_of_work():
    rests = []
    fit_spans(spans(40, z=biased), pause=lambda: rests.append(1))
    assert len(rests) > 50


def test_what_lasts_counts_more():
    """Yes lasts: where features tell nothing, an answer leans to what is seen more often."""
    data = [replace(one, seen=3 if one.answer else 60) for one in spans(30, z=biased)]
    equal = fit_spans([replace(one, seen=0) for one in data])
    assert fit_spans(data).bias > equal.bias


def test_thresholds_that_were_fitted_to_other_answers_give_way_to_the_usual_ones():
    data = spans(40, z=biased)
    far = fit_spans(data, thresholds=(0.99, 0.01))
    assert far.refusal == "" and far.thresholds == (0.65, 0.35)
    assert fit_spans(data, thresholds=(0.66, 0.34)).thresholds is None  # it makes no difference
    assert fit_spans(data).thresholds is None


def test_the_chance_of_guessing():
    assert by_guessing(8, 10, 0.8) > 0.6
    assert by_guessing(10, 10) == 2 ** -10 and by_guessing(0, 5) == 1.0
    assert by_guessing(9, 10) == pytest.approx(11 / 1024)
