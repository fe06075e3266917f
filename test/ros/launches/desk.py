"""launch_testing: desk.launch.py with the simulated camera, in a namespace."""

import launch_listener
import launch_testing


def generate_test_description():
    """Start it."""
    return launch_listener.started("desk", namespace="robot", image="front/image", width="320",
                                   height="240", image_transport="compressed")


class TestDesk(launch_listener.Listener):
    """While it runs."""

    def test_every_question_is_answered_about_the_sim_camera(self):
        """Questions of the shipped set, answered on evidence from the camera."""
        self.until(lambda: self.questions)
        ids = [question.id for question in self.questions[-1].questions]
        self.assertEqual(len(ids), 16)
        self.until(lambda: all(map(self.answered, ids)))
        self.assertEqual(self.got["", "person"][-1].header.frame_id, "camera")
        self.assertIn("front/image/compressed", [
            name.removeprefix("/robot/") for name, _ in self.node.get_topic_names_and_types()])


@launch_testing.post_shutdown_test()
class TestEnd(launch_listener.EndsCleanly):
    """After that."""
