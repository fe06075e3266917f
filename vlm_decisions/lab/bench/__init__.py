"""Benchmarks of the engine and of the running node."""
