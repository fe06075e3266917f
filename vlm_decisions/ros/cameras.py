"""The image subscriptions of all views: one for each camera, whichever views it feeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rclpy.node import Node

from ..frames import Frame
from ..reuse import VECTORS
from ..runtime import Runtime
from ..views import View
from .parameters import value_range
from .subscription import ImageSubscription

IMAGE = "image"
"""Topic of the views that name none."""


def located(node: Node, view: View, transport: str) -> View:
    """Return a view that knows its camera: the topic as it is resolved, and how it is sent.

    ``transport``: of the views that name none. Whatever they call it, views of one topic then share
    a subscription.
    """
    topic = node.resolve_topic_name(view.image or IMAGE)
    return replace(view, source=(topic, view.transport or transport))


class Cameras:
    """Subscribes what the views of a runtime need, and hands the images to it.

    ``values`` are those of the node's parameters; a view's own image and transport come before.
    """

    def __init__(self, node: Node, runtime: Runtime, values: Mapping[str, Any]) -> None:
        self._node, self._runtime = node, runtime
        self._transport = values["image_transport"]
        self._settings = {
            "reliability": values["reliability"], "stamp_source": values["stamp_source"],
            "max_pixels": values["max_image_pixels"], "value_range": value_range(values),
            "vectors": values["reuse"] == VECTORS}
        self._subscriptions: dict[tuple[str, str], ImageSubscription] = {}
        self.follow()

    def follow(self) -> None:
        """Subscribe the cameras of the present views, and leave those that no view needs."""
        wanted = {view.camera: view for view in self._runtime.views()}
        for camera in self._subscriptions.keys() - wanted.keys():
            self._subscriptions.pop(camera).close()
        for camera in wanted.keys() - self._subscriptions.keys():
            view = wanted[camera]
            self._subscriptions[camera] = ImageSubscription(
                self._node, partial(self._runtime.push, camera=camera), image=view.image or IMAGE,
                transport=view.transport or self._transport, **self._settings)

    def of(self, view: View) -> ImageSubscription:
        """Return the subscription that feeds a view."""
        return self._subscriptions[view.camera]

    def newest(self, view: View) -> Frame | None:
        """Return a view's newest image, None before the first."""
        subscription = self._subscriptions.get(view.camera)
        return subscription.newest if subscription else None

    @property
    def topics(self) -> list[str]:
        """The topics subscribed, after remapping."""
        return sorted(one.topic for one in self._subscriptions.values())

    def check(self) -> None:
        """Tell the runtime of cameras whose images do not come as they should."""
        for camera, subscription in self._subscriptions.items():
            if trouble := subscription.trouble():
                self._runtime.refuse(trouble, camera)

    def close(self) -> None:
        """Stop receiving."""
        for subscription in self._subscriptions.values():
            subscription.close()
        self._subscriptions.clear()
