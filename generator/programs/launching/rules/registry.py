"""Every rule on launch lines, hostfiles and environment variables."""

from __future__ import annotations

from typing import Final

from . import deepspeed_launcher, environment, hostfiles, lines, programs, ranks, torchrun

MODULES: Final = (deepspeed_launcher, torchrun, ranks, lines, programs, hostfiles, environment)
