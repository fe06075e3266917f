"""Studies of a model on recordings whose truth is known."""
