"""What a user's own labels change: heads, calibration and thresholds, and their measures."""
