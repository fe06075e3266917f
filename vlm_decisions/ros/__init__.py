"""The ROS edge: messages in and out, parameters, services, diagnostics, overlay."""
