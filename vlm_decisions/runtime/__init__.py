"""Frames in, decisions out. Needs neither ROS nor MLX to be imported."""

from .runtime import NotReadyError, Runtime

__all__ = ["NotReadyError", "Runtime"]
