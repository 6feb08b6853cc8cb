"""The C library, as its header declares it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import cffi

#: Environment variable with the path of the library, if the loader is not to look for it.
LIBRARY_ENV = "HOSTD_LIBRARY"

#: The version whose structures this package knows.
LIBRARY = "libhostd.so.0"


def declarations(header: str) -> str:
    """What cffi reads of the header: all but what is for the preprocessor and for C++."""
    without = re.sub(r"#ifdef __cplusplus\n.*?#endif\n", "", header, flags=re.DOTALL)
    return "\n".join(line for line in without.splitlines() if not line.startswith("#"))


ffi: Any = cffi.FFI()
ffi.cdef(declarations((Path(__file__).parent / "hostd.h").read_text(encoding="utf-8")))
try:
    lib: Any = ffi.dlopen(os.environ.get(LIBRARY_ENV, LIBRARY))
except OSError as error:
    raise ImportError(
        f"hostd needs its C library: `make install && ldconfig` puts it where the loader looks, or "
        f"{LIBRARY_ENV} names it ({error})"
    ) from error


for _name in dir(lib):
    try:
        getattr(lib, _name)
    except AttributeError as error:
        raise ImportError(
            f"the C library of hostd is another one than this package is for ({error}): install both from "
            f"the same version, or let {LIBRARY_ENV} name the right one"
        ) from error


def text(pointer: Any) -> str:
    """The text at a pointer of the library."""
    return str(ffi.string(pointer), "utf-8", "replace")


#: Version of the library.
VERSION: str = text(lib.hostd_version())
