"""The replay benchmark: recordings answered in several modes, and scored against their truth."""
