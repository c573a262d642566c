"""How each Hugging Face `model_type` spells a transformer's shape: the table of supported families."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from . import hf_classic, hf_dense, hf_moe
from .hf_reader import ConfigReader
from .hf_shape import Shape

FAMILIES: Mapping[str, Callable[[ConfigReader], Shape]] = {
    "bert": hf_classic.read_bert,
    "bloom": hf_classic.read_bloom,
    "deepseek_v2": hf_moe.read_deepseek_v2,
    "deepseek_v3": hf_moe.read_deepseek_v3,
    "falcon": hf_classic.read_falcon,
    "gemma": hf_dense.read_gemma,
    "gemma2": hf_dense.read_gemma2,
    "gemma3_text": hf_dense.read_gemma3_text,
    "gpt2": hf_classic.read_gpt2,
    "gpt_neox": hf_dense.read_gpt_neox,
    "gpt_oss": hf_moe.read_gpt_oss,
    "llama": hf_dense.read_llama,
    "mistral": hf_dense.read_mistral,
    "mixtral": hf_moe.read_mixtral,
    "opt": hf_classic.read_opt,
    "phi": hf_dense.read_phi,
    "phi3": hf_dense.read_phi3,
    "phimoe": hf_moe.read_phimoe,
    "qwen2": hf_dense.read_qwen2,
    "qwen2_moe": hf_moe.read_qwen2_moe,
    "qwen3": hf_dense.read_qwen3,
    "qwen3_moe": hf_moe.read_qwen3_moe,
}
