"""Training of the embedded model and of the Tier 1 heads; needs the `train` extra (PyTorch)."""
