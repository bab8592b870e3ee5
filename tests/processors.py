"""Settings that make this machine compute as another processor does, in the last bits."""

from __future__ import annotations

from collections.abc import Mapping

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "generic": {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Prescott"},
    "compatible": {"MKL_CBWR": "COMPATIBLE", "NPY_DISABLE_CPU_FEATURES": "X86_V3"},
    "libm": {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA"},
    "numba": {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
}
"""Environment variables: none; torch's and OpenBLAS' plainest kernels; MKL's and NumPy's; the C
library without fused multiplication; compiled code for any x86-64 processor."""
