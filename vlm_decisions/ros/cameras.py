"""The image subscriptions of all views: one for each camera, whichever views it feeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rclpy.exceptions import InvalidTopicNameException
from rclpy.node import Node
from rclpy.validate_full_topic_name import validate_full_topic_name

from ..frames import Frame
from ..reuse import VECTORS
from ..runtime import Runtime
from ..sources.messages import base_of, topic_of
from ..views import View, ViewError
from .parameters import value_range
from .publishers import VIEW_TOPICS
from .subscription import ImageSubscription

IMAGE = "image"
"""Topic of the views that name none."""


def located(node: Node, view: View, transport: str) -> View:
    """Return a view that knows its camera: the topic as it is resolved, and how it is sent.

    ``transport``: of the views that name none. Whatever they call it, views of one topic then share
    a subscription. Raises ViewError where the node cannot subscribe it.
    """
    sent = view.transport or transport
    try:
        topic = node.resolve_topic_name(view.image or IMAGE)
        validate_full_topic_name(topic_of(topic, sent))
    except (RuntimeError, InvalidTopicNameException) as error:  # RCLError is a RuntimeError
        whose = f"view '{view.name}': " if view.name else ""
        raise ViewError(f"{whose}image: {str(error).splitlines()[0]}", "image") from error
    return replace(view, source=(topic, sent))


def check_foreign(node: Node, views: Iterable[View]) -> None:
    """Raise ViewError where a located view's image is a topic that the node itself publishes.

    It would see its own answers drawn, and pictures that grow with each round. Topics that the
    views are going to have count, too.
    """
    views = tuple(views)
    own = {publisher.topic_name for publisher in node.publishers}
    own |= {node.resolve_topic_name(f"~/{view.name}/{topic}")
            for view in views if view.name for topic in VIEW_TOPICS}
    for view in views:
        topic = view.camera[0]
        if topic in own or base_of(topic) in own:
            whose = f"view '{view.name}': " if view.name else ""
            raise ViewError(f"{whose}image {topic} is a topic of this node itself, which would see "
                            "what it publishes: give the topic of a camera", "image")


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
