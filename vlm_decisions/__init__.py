"""Standing questions about a camera, answered as probabilities with ages."""

import os
import sys

__version__ = "0.1.0"

# The generated msg/ and srv/ modules exist only where the package was built. In a source tree
# this adds an installed build's modules behind the tree's own; elsewhere it changes nothing.
# (pkgutil.extend_path does the same, but its imports take longer than all else that happens before
# the programs can take care of signals.)
__path__ += [
    folder for folder in (os.path.join(entry, __name__) for entry in sys.path)
    if folder not in __path__ and os.path.isfile(os.path.join(folder, "__init__.py"))]
