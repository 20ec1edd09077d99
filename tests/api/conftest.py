"""The model of a backend that tests of the controller use is used here too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "controller"))
