"""Files: written whole or not at all, YAML with line numbers, and what comes with the package."""
