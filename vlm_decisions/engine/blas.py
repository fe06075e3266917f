"""Give MLX's CPU backend a fast BLAS on Linux.

MLX's Linux CPU wheel links the reference BLAS (about 6 GFLOPS). Symbols are looked up in the
global scope first, so an OpenBLAS loaded with ``RTLD_GLOBAL`` before ``mlx.core`` is first imported
takes its place (150 to 200 GFLOPS on two cores). Nothing is written or patched on disk.

Call ``ensure()`` before importing MLX; every module of the engine that imports MLX does.
``VLM_DECISIONS_BLAS`` names a library to load, or ``none`` to leave MLX as it is.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path

_LOG = logging.getLogger(__name__)
# The wheels that bundle an OpenBLAS beside the package, in a folder of its own.
_WHEEL_FOLDERS = (
    ("cv2", "opencv_python.libs"),
    ("cv2", "opencv_python_headless.libs"),
    ("cv2", "opencv_contrib_python.libs"),
    ("cv2", "opencv_contrib_python_headless.libs"),
    ("numpy", "numpy.libs"),
    ("scipy", "scipy.libs"),
)
_SYSTEM = (
    "/usr/lib/{arch}-linux-gnu/openblas-pthread/libopenblas.so.0",
    "/usr/lib/{arch}-linux-gnu/openblas-openmp/libopenblas.so.0",
    "/usr/lib/{arch}-linux-gnu/libopenblas.so.0",
    "/usr/lib64/libopenblas.so.0",
    "/usr/lib64/libopenblasp.so.0",
)
_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True)
class Blas:
    """What was loaded: ``path`` (None if nothing) and a sentence on how it came to that."""

    path: str | None
    note: str


_loaded: Blas | None = None
_used: int | None = None  # threads asked for by ``use_threads``


def ensure() -> Blas:
    """Load an OpenBLAS for MLX once; later calls return what the first one did."""
    global _loaded
    if _loaded is None:
        _loaded = _load()
        level = logging.INFO if _loaded.path or not sys.platform == "linux" else logging.WARNING
        _LOG.log(level, "BLAS for MLX: %s", _loaded.note)
    return _loaded


def use_threads(n: int) -> bool:
    """Let the loaded OpenBLAS use ``n`` threads; False if there is none or the user has chosen.

    NumPy's own, if it is another one, is told too. The products of a small model are over before a
    second thread has woken up, and where other processes want the cores, waiting for it costs more
    than it brings.
    """
    global _used
    path = ensure().path
    if any(os.environ.get(name) for name in _THREADS):
        return False
    told = [_tell(library, n) for library in (*([path] if path else []), *_numpys())]
    if path is None or not told[0]:
        return False
    _used = n
    return True


def use_one_numpy_thread() -> None:
    """Let NumPy's own OpenBLAS use one thread, where it is not the one that MLX has."""
    for library in _numpys():
        if library != ensure().path:
            _tell(library, 1)


def _tell(path: str, n: int) -> bool:
    """Tell one OpenBLAS how many threads to use; whether it could be told."""
    library = ctypes.CDLL(path)
    for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
        name = f"{prefix}openblas_set_num_threads{suffix}"
        if hasattr(library, name):
            getattr(library, name)(n)
            return True
    return False


def _numpys() -> list[str]:
    """Return NumPy's own OpenBLAS, where its wheel bundles one."""
    spec = find_spec("numpy")
    places = (spec.submodule_search_locations or ()) if spec else ()
    return [str(p) for place in places for p in Path(place).parent.glob("numpy.libs/*openblas*")]


def threads() -> int:
    """How many threads numeric work may use: as chosen, or the cores of this process."""
    if _used is not None:
        return _used
    for name in _THREADS:
        if os.environ.get(name, "").isdecimal() and int(os.environ[name]) > 0:
            return int(os.environ[name])
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _load() -> Blas:
    if sys.platform != "linux":
        return Blas(None, "not needed on this platform")
    wanted = os.environ.get("VLM_DECISIONS_BLAS", "")
    if wanted.lower() == "none":
        return Blas(None, "left as it is (VLM_DECISIONS_BLAS=none): slow on the CPU")
    if "mlx.core" in sys.modules:
        return Blas(
            None,
            "mlx was imported before vlm_decisions.engine, so its own BLAS stays: "
            "right but about 30 times slower on the CPU; import vlm_decisions.engine.blas "
            "and call ensure() first",
        )
    tried = []
    for path in [wanted] if wanted else candidates():
        try:
            if _has_plain_sgemm(path):
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
                return Blas(path, f"OpenBLAS at {path}")
            tried.append(f"{path} (no plain cblas_sgemm)")
        except OSError as error:
            tried.append(f"{path} ({error})")
    return Blas(
        None,
        "no OpenBLAS with plain cblas_sgemm found, so matrix products on the CPU are right but "
        "about 30 times slower; install libopenblas0 or opencv-python"
        + (f"; tried {'; '.join(tried)}" if tried else ""),
    )


def candidates() -> Iterator[str]:
    """Yield the libraries to try: the system's OpenBLAS first, then those bundled with wheels."""
    arch = os.uname().machine
    for pattern in _SYSTEM:
        path = Path(pattern.format(arch=arch))
        if path.exists():
            yield str(path)
    found = ctypes.util.find_library("openblas")
    if found:
        yield found
    for package, folder in _WHEEL_FOLDERS:
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or ()) if spec else ():
            yield from (str(p) for p in sorted((Path(place).parent / folder).glob("*openblas*")))


def _has_plain_sgemm(path: str) -> bool:
    """Whether the library exports ``cblas_sgemm`` itself (wheels often add a prefix or suffix)."""
    library = ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    return hasattr(library, "cblas_sgemm") and hasattr(library, "sgemm_")
