"""The simulated desk: a procedurally drawn world whose truth is exact."""
