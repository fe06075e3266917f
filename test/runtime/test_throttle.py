"""The same thing is said only now and then."""

from vlm_decisions.runtime.throttle import MOST_KEYS, Throttle


def test_each_key_passes_once_in_a_while():
    now = [100.0]
    throttle = Throttle(5.0, lambda: now[0])
    assert throttle.passes("a") and throttle.passes("b") and throttle.passes()
    assert not throttle.passes("a") and not throttle.passes()
    now[0] += 4.9
    assert not throttle.passes("a")
    now[0] += 0.2
    assert throttle.passes("a") and not throttle.passes("a")


def test_keys_without_number_do_not_pile_up():
    throttle = Throttle(5.0, lambda: 0.0)
    assert all(throttle.passes(n) for n in range(3 * MOST_KEYS))
    assert len(throttle._passed_s) <= MOST_KEYS
