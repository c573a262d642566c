"""The packages, and the description without a checkout's links: setup.cfg can say neither."""

import re
from pathlib import Path

from setuptools import find_packages, setup

README = (Path(__file__).parent / "README.md").read_text(encoding="utf-8")
_PICTURE = re.compile(r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)[^)]*\)")

setup(
    packages=[
        "dsgen",
        *(f"dsgen.{name}" for name in find_packages("generator")),
        "dsgen.schemas",
        "dsgen.templates",
    ],
    long_description=_LINK.sub(r"\1", _PICTURE.sub("", README)),
    license_expression="Apache-2.0",
)
