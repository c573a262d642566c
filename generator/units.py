"""Units, as plain factors to SI: `80 * GIB` is bytes, `400 * GBIT_PER_S` is bytes per second."""

from __future__ import annotations

KIB = 2**10
MIB = 2**20
GIB = 2**30
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12
GB_PER_S = 1e9
GBIT_PER_S = 1e9 / 8
TFLOPS = 1e12
MICROSECOND = 1e-6
