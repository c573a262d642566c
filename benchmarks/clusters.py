"""Groups of sources that ran on the same machines with the same stack; a group is left out at once.

Decided by the sources' own words (columns `interconnect`, `framework` and `url_or_repo_path` of
`measured.csv`), and joined where in doubt, so that a cluster left out is one that the fit has never
seen:

- jean-zay: both of BigScience's collections ran at Jean Zay, on Omni-Path, with its fork of
  Megatron-DeepSpeed; the V100 and the A100 partition share network, stack and authors.
- nvidia-dgx: Selene, and the DGX machines of the same authors before it (V100 in 2020), all with
  Megatron-LM of 2019 to 2022 (2104.04473, 2205.05198; MT-NLG ran on Selene).
- nvidia-nemo: NeMo and Megatron-Bridge on NVIDIA's Hopper and Blackwell systems: tables, cards,
  skills and the page on long sequences come from one benchmark group.
- nvidia-eos: Megatron-LM's own table of scaling on H100.
- mosaicml: three parts, one platform and one program (llm-foundry).

Every other source is a cluster by itself.
"""

from __future__ import annotations

from benchmarks.measured import Run

JOINED = {
    "jean-zay": ("bigsci-a100", "bigsci-v100"),
    "nvidia-dgx": ("megatron-2020", "megatron-sc21", "korthikanti", "mt-nlg"),
    "nvidia-nemo": ("mbridge", "mbridge-card", "mbridge-mem", "nemo-longctx"),
    "nvidia-eos": ("megatron-h100",),
    "mosaicml": ("llm-foundry",),
}
_OF_SOURCE = {source: cluster for cluster, sources in JOINED.items() for source in sources}


def cluster(run: Run) -> str:
    """The name of the machines and the stack that `run` shares with others."""
    return _OF_SOURCE.get(run.source, run.source)
