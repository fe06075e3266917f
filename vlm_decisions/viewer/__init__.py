"""The viewer: one page that shows what the camera sees and what was decided, and lets one ask."""
