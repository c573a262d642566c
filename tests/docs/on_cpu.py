"""Starts a training script on processors, with what has to be other than on GPUs: `on_cpu.py SCRIPT
ARGUMENTS`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed  # noqa: F401 - before transformers looks for it

sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None  # type: ignore[attr-defined]
del sys.argv[0]
at = next(number for number, word in enumerate(sys.argv) if word.endswith("ds_config.json"))
config = json.loads(Path(sys.argv[at]).read_text())
config["optimizer"]["params"]["torch_adam"] = True
own = Path(f"ds_config_{os.environ['RANK']}.json")
own.write_text(json.dumps(config))
sys.argv[at] = str(own)
if "--output_dir" in sys.argv:
    sys.argv += [
        "--use_cpu",
        "true",
        "--logging_steps",
        "1",
        "--report_to",
        "none",
        "--disable_tqdm",
        "true",
    ]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.stdout.flush()
os._exit(0)  # shutting down aborts now and then on a thread of gloo's
