"""The broken networks are found by a short name, as a user's are: what stands beside them is digested with them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
