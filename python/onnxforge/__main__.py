"""``python -m onnxforge``."""

import sys

from ._cli import main

sys.exit(main())
