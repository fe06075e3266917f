"""Recorded material as a camera."""
