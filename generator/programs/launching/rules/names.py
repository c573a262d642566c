"""Values of launchers' options that are the name of a variable."""

from __future__ import annotations

from typing import Final

from ....findings import ERROR, Violations
from ....numerals import is_whole
from ....rules.violations import derived
from ..environment import variable_without_sign
from ..launcher_call import ADDRESSES, NODES, PER_NODE, PORTS, LauncherCall
from ..subjects import launcher_calls

#: Options that count, say where ranks meet, or name a file: no value is a variable's name.
_OPTIONS: Final = (
    *NODES.values(),
    *PER_NODE.values(),
    "--num_processes",
    *PORTS.values(),
    *ADDRESSES,
    "--node-rank",
    "--node_rank",
    "--machine_rank",
    "--config_file",
    "--hostfile",
)


@launcher_calls.rule(
    "LNCH052",
    ERROR,
    "launcher",
    derived("bash(1), EXPANSION: a name is a variable behind a dollar sign alone"),
)
def variables_have_their_sign(call: LauncherCall) -> Violations:
    """A count, rank, port, address or file of a launcher is no variable's name without its `$`.
    Prevents: invalid literal for int(): 'SLURM_NNODES'; a host of that name, which nobody finds.
    Fix: write the `$` before the name
    """
    for name in dict.fromkeys(_OPTIONS):
        value = call.text(name) if call.has(name) else None
        variable = variable_without_sign(call, value.value) if value is not None else None
        if value is not None and variable is not None:
            message = f"{value} is the name of a variable, and not its value"
            yield value.bad_value(message, f"write {value.option.name}=${variable}")
        host = value.value.partition(":")[0] if value is not None and name in ADDRESSES else ""
        if value is not None and is_whole(host):
            message = f"{value}: a number is no host's name or address"
            yield value.bad_value(message, f"write {value.option.name}=${host}")
