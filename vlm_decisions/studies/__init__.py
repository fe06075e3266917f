"""Measurements of the engine and its answers."""
