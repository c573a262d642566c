"""Stand-ins for modules that old releases of DeepSpeed import and today's environment lacks."""

from __future__ import annotations

import sys
import types


def stand_in_for_the_past() -> None:
    """Return what releases before 0.14 import and today's torch and numpy lack; the parser uses
    none of it.
    """
    import numpy
    from torch.distributed.elastic.agent.server import api

    for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):
        sys.modules.setdefault(name, types.ModuleType(name))
    for module, name in ((api, "log"), (api, "_get_socket_with_port"), (numpy, "BUFSIZE")):
        if not hasattr(module, name):
            setattr(module, name, None)
