"""The frameworks by name, and the groups of them that share a constraint."""

from __future__ import annotations

DEEPSPEED = "deepspeed"
HUGGINGFACE = "huggingface"
MEGATRON_DEEPSPEED = "megatron-deepspeed"
MEGATRON_LM = "megatron-lm"

MEGATRONS = (MEGATRON_DEEPSPEED, MEGATRON_LM)  #: tensor parallelism by Megatron's own layers
AUTOTP = (DEEPSPEED, HUGGINGFACE)  #: tensor parallelism by DeepSpeed's AutoTP
ENGINES = (DEEPSPEED, HUGGINGFACE, MEGATRON_DEEPSPEED)  #: what runs on DeepSpeed's engine
