"""launch_testing: replay.launch.py playing a video file round and round."""

import os

import launch_listener
import launch_testing


def generate_test_description():
    """Start it with the video that the test made."""
    return launch_listener.started("replay", source=os.environ["TEST_VIDEO"], loop="true")


class TestReplay(launch_listener.Listener):
    """While it runs."""

    path = "/decision_node"

    def test_the_video_is_seen(self):
        """The camera's health and a question are decided on the video's frames."""
        self.until(lambda: self.answered("camera_dark") and self.answered("person"))


@launch_testing.post_shutdown_test()
class TestEnd(launch_listener.EndsCleanly):
    """After that."""
