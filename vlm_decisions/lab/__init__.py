"""What a robot never runs: training of the embedded model, studies, benchmarks, exactness."""

# Loads the BLAS before any module in here imports MLX.
from .. import engine as engine
