"""Standing questions about a camera, answered as probabilities with ages."""

from pkgutil import extend_path

__version__ = "0.1.0"

# The generated msg/ and srv/ modules exist only where the package was built. In a source tree
# this adds an installed build's modules behind the tree's own; elsewhere it changes nothing.
__path__ = extend_path(__path__, __name__)
