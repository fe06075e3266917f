"""Recorded and live material as a camera: videos, bags, image messages, and their truth."""
