"""What DeepSpeed's own parser holds after reading configs, as JSON lines.

`python -m tests.config_reading_worker WORLD < texts > values`
"""

from __future__ import annotations

import json
import sys
from typing import Any

from dsgen.check.engine import parse, quiet, read

#: The attribute of `DeepSpeedConfig` for each section that a model reads.
MODELS = {
    "/zero_optimization": "zero_config",
    "/zero_optimization/offload_optimizer": "zero_config.offload_optimizer",
    "/zero_optimization/offload_param": "zero_config.offload_param",
    "/fp16": "float16_config",
    "/bf16": "bfloat16_config",
    "/compile": "compile_config",
    "/tensor_parallel": "tensor_parallel_config",
}
#: Attributes with the name of their key at the top level.
PLAIN = (
    *(
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "gradient_accumulation_steps",
        "gradient_clipping",
    ),
    *(
        "steps_per_print",
        "prescale_gradients",
        "gradient_predivide_factor",
        "gradient_allreduce_op",
        "dump_state",
    ),
    *(
        "managed_gradient_accumulation",
        "zero_allow_untested_optimizer",
        "zero_force_ds_cpu_optimizer",
    ),
)


def main() -> None:
    """A line with a text in, a line with what is held of it out: null where DeepSpeed refuses
    it.
    """
    texts = [json.loads(line) for line in sys.stdin]
    with quiet():
        answers = [held(text, int(sys.argv[1])) for text in texts]
    for answer in answers:
        print(json.dumps(answer, default=str))


def held(text: str, world: int) -> dict[str, Any] | None:
    """The values of the sections, of the plain keys, and of what has another name, by pointer."""
    try:
        config = parse(read(text, strict=False), world)
    except Exception:
        return None
    values = {f"/{name}": getattr(config, name) for name in PLAIN}
    values["/optimizer/type"] = config.optimizer_name
    values["/torch_autocast/enabled"] = config.torch_autocast_enabled
    values["/data_types/grad_accum_dtype"] = config.grad_accum_dtype
    for pointer, path in MODELS.items():
        model = config
        for name in path.split("."):
            model = getattr(model, name, None)
        values |= {
            f"{pointer}/{name}": value
            for name, value in (vars(model) if model is not None else {}).items()
        }
    return values


if __name__ == "__main__":
    main()
