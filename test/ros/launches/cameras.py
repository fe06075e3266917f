"""launch_testing: cameras.launch.py: four cameras, one node, in a namespace."""

import launch_listener
import launch_testing


def generate_test_description():
    """Start it."""
    return launch_listener.started("cameras", namespace="robot", questions="desk")


class TestCameras(launch_listener.Listener):
    """While it runs."""

    def test_every_question_is_answered_about_each_desk(self):
        """Questions of the shipped set, each asked of every view."""
        self.until(lambda: self.questions)
        ids = [question.id for question in self.questions[-1].questions]
        views = [view.name for view in self.questions[-1].views]
        self.assertEqual(views, ["desk_1", "desk_2", "desk_3", "desk_4"])
        self.until(lambda: all(self.answered(name, view) for view in views for name in ids))
        self.assertEqual(self.got["desk_3", "person"][-1].header.frame_id, "desk_3")


@launch_testing.post_shutdown_test()
class TestEnd(launch_listener.EndsCleanly):
    """After that."""
