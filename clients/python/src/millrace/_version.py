"""The version of the client. The file VERSION beside this module holds it: in a release's wheel, the tag's version."""

from __future__ import annotations

import os

with open(os.path.join(os.path.dirname(__file__), "VERSION"), encoding="utf-8") as _file:
    VERSION = _file.read().strip()
