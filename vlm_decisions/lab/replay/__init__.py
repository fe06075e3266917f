"""The replay benchmark: recordings answered in several ways, scored against their truth."""
