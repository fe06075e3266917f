"""Tier 0 (camera health) and Tier 1 (linear heads on the vision features)."""
