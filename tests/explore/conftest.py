"""Makes the scripts of docs/ importable for their tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "docs"))
