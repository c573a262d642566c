"""What setup.cfg can't say: the description without links and pictures, which work in a checkout alone."""

import re
from pathlib import Path

from setuptools import setup

README = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")

setup(long_description=_LINK.sub(r"\1", _PICTURE.sub("", README)), license_expression="Apache-2.0")
