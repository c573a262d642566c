"""The rules on a job spec as text, shape and names. Ids are never reused."""

from __future__ import annotations

from functools import partial
from typing import Final

from ..findings import WARNING
from ..text.codes import DUPLICATE_KEY as DUPLICATE_KEY
from ..text.codes import FORBIDDEN_CHARACTER as FORBIDDEN_CHARACTER
from ..text.codes import SYNTAX as SYNTAX
from ..text.codes import TOO_LARGE as TOO_LARGE
from ..text.codes import UNREADABLE as UNREADABLE
from ..text.codes import UNSUPPORTED_YAML as UNSUPPORTED_YAML
from ..text.codes import rule_on_spec as _spec

_warning = partial(_spec, severity=WARNING, when="silent")

UNKNOWN_KEY: Final = _spec("""SPEC006: Every key is one that dsgen reads.
    Prevents: A misspelled key would be ignored, and the job would run with the default.
    Fix: use the key that the hint names; `dsgen schema job` lists all""")
MISSING_KEY: Final = _spec("""SPEC007: Every required key is present.
    Prevents: The plan would rest on an assumption.
    Fix: add the key, as in the hint""")
WRONG_TYPE: Final = _spec("""SPEC008: Every value has the type of its key.
    Prevents: Programs read a number in quotes, or `yes` for true, in different ways.
    Fix: write a value of the type named""")
WRONG_VALUE: Final = _spec("""SPEC009: Every value is one of the key's values, or in its range.
    Prevents: The job would fail when a program reads the value, hours later.
    Fix: use one of the values named""")
CONFLICTING_KEYS: Final = _spec("""SPEC010: Keys that set the same thing in different ways are not
    combined.
    Prevents: One of the two would silently win.
    Fix: keep one of them
    """)
UNKNOWN_NAME: Final = _spec("""SPEC011: Models, clusters and accelerators are in the catalog.
    Prevents: The plan would be for another model or machine.
    Fix: use the name in the hint, or describe it inline; `dsgen catalog` lists all names""")
PARTIAL_SEQUENCES: Final = _spec("""SPEC012: A global batch in tokens is a whole number of
    sequences.
    Prevents: The batch would silently be rounded to another size.
    Fix: use one of the two token counts that the hint names
    """)
UNUSABLE_MODEL: Final = _spec("""SPEC013: The model's configuration is of a transformer that dsgen
    has.
    Prevents: Sizes would be estimated for another model.
    Fix: add the keys that the message names, or use a config.json as published
    """)
ENVIRONMENT_NAME: Final = _spec("""SPEC015: The name of an environment variable is a shell
    identifier.
    Prevents: The shell would stop at the export, or run it as a command.
    Fix: use letters, digits and underscores, with no digit first
    """)
SECRET: Final = _spec(
    """SPEC016: No secret is written into a job spec, or into the files made of it.
    Prevents: The secret would be in files that are shared, committed and kept with the job.
    Fix: remove it, and set it where the job is submitted, or let the script read it from a private
    file
    """,
    when="silent",
)
OVERRIDE: Final = _spec("""SPEC017: An override names a key that can be set.
    Prevents: The override would be lost.
    Fix: name a key, as in --set layout.zero_stage=1""")
CALIBRATION: Final = _spec("""SPEC018: A calibration is a file as dsgen calibrate writes it.
    Prevents: The plan would rest on factors that were misread, or on none.
    Fix: use the file that dsgen calibrate wrote, unchanged""")
CALIBRATION_MACHINE: Final = _spec("""SPEC019: A calibration was fitted on the job's accelerator,
    network and framework.
    Prevents: Step times would be estimated with the network and kernels of another machine.
    Fix: run dsgen calibrate on runs of the job's own machine
    """)
CALIBRATION_AGE: Final = _warning("""SPEC020: A calibration was fitted with this version of dsgen.
    Prevents: Factors multiply constants, which may differ in another version.
    Fix: run dsgen calibrate with the same runs and this version""")

LEFT_OUT: Final = _warning("""SPEC021: A model's configuration describes nothing beyond what is
    planned.
    Prevents: No error: the part that the message names is neither counted nor in the launch files.
    Fix: nothing, if that part isn't trained; else count it by hand
    """)

NETWORK: Final = _warning("""SPEC022: The network between counted machines is known.
    Prevents: No error: step times rest on a rate that may not be that of these machines.
    Fix: use a node type of the catalog, or set cluster.network_gbits_per_s_per_node""")
