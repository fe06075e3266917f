"""The BLAS under MLX: found, loaded before MLX, and honest when it is not."""

import json
import os
import subprocess
import sys

import pytest

from vlm_decisions.engine import blas

LINUX = sys.platform == "linux"
PROBE = """
import json, sys, time
{first}
from vlm_decisions.engine import blas
found = blas.ensure()
import mlx.core as mx
with mx.stream(mx.cpu):
    a = mx.random.normal((768, 768))
    mx.eval(a @ a)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter(); mx.eval(a @ a); best = min(best, time.perf_counter() - start)
print(json.dumps([found.path, found.note, 2 * 768**3 / best / 1e9]))
"""


def probe(first="", **env):
    out = subprocess.run(
        [sys.executable, "-c", PROBE.format(first=first)],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(out.stdout)


@pytest.mark.skipif(not LINUX, reason="only Linux needs another BLAS")
def test_openblas_is_loaded():
    path, note, _ = probe()
    assert path and "openblas" in path.lower(), note


@pytest.mark.perf
@pytest.mark.skipif(not LINUX, reason="only Linux needs another BLAS")
def test_it_is_much_faster_than_the_wheel_s_own():
    _, _, fast = probe()
    _, _, slow = probe(VLM_DECISIONS_BLAS="none")
    assert fast > 4 * slow, (fast, slow)


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="only Linux needs another BLAS")
def test_too_late_is_said_not_hidden():
    path, note, _ = probe(first="import mlx.core")
    assert path is None
    assert "imported before" in note


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="only Linux needs another BLAS")
def test_a_library_without_plain_symbols_is_named():
    path, note, _ = probe(VLM_DECISIONS_BLAS="libm.so.6")
    assert path is None
    assert "libm.so.6" in note
    assert "no plain cblas_sgemm" in note


def test_ensure_answers_the_same_each_time():
    assert blas.ensure() is blas.ensure()
