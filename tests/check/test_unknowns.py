"""What isn't known draws no error: plug-ins, the command line, the environment, placeholders, other
programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

import dsgen
from dsgen.places import is_placeholder

_JOB: Final = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=8\n"
)
_ON: Final = "srun --kill-on-bad-exit=1 --nodelist="
_EACH: Final = (
    "#!/bin/bash\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-task=1\nsrun python train.py\n"
)
_FIRST: Final = "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 --master-addr=$H train.py\n"
_AML: Final = (
    "$schema: "
    "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ncommand: python train.py\n"
)
_RUN: Final = (
    "  --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1"
)
_BRANCHES: Final = f"""#!/bin/bash
convert="torchrun tools/convert.py --from $WEIGHTS --save out"
train="torchrun pretrain_gpt.py --load out"
if [ "$1" = convert ]; then cmd="$convert"; else cmd="$train"; fi
$cmd{_RUN}
"""
_MEGATRON: Final = (
    "#!/bin/bash\ndeepspeed pretrain_gpt.py --deepspeed --deepspeed_config "
    f"ds.json{_RUN} --train-iters 9\n"
)
_T5: Final = (
    f"#!/bin/bash\ndeepspeed pretrain_t5.py --deepspeed --max-position-embeddings 64{_RUN} {{}}\n"
)
_PARSER: Final = "\n".join(
    f"group.add_argument('--{name}')"
    for name in (
        "num-layers",
        "hidden_size",
        "num-attention-heads",
        "seq-length",
        "micro-batch-size",
    )
)
_STAGE: Final = (
    '{"train_batch_size": 8, "optimizer": {"type": "AdamW"}, "zero_optimization": {"stage": 1}}'
)
_AUTO: Final = (
    '{"train_batch_size": "auto", "optimizer": {"type": "AdamW"}, '
    '"zero_optimization": {"stage": 1}}'
)
_ADDS: Final = 'ds_config["train_batch_size"] {} args.batch\n'
_NAMED: Final = "#!/bin/bash\ndeepspeed main.py --deepspeed --deepspeed_config ds.json\n"
_ENGINE: Final = "import deepspeed\ndeepspeed.initialize(model)\n"
_OF_MODEL: Final = (
    "#!/bin/bash\ndeepspeed src/$MODEL/main.py a.json --deepspeed --deepspeed_config ds.json\n"
)
_SPLIT: Final = "#!/bin/bash\ndeepspeed --num_gpus 8 eval.py --deepspeed --deepspeed_config ds.json"
_ONE: Final = '{"train_batch_size": 1, "train_micro_batch_size_per_gpu": 1}'
_ELASTIC: Final = (
    "#!/bin/bash\ntorchrun --nnodes={} --rdzv_backend=c10d --rdzv_endpoint=localhost:6000 t.py\n"
)
_NOTES: Final = "{}pip install deepspeed\n#SBATCH --nodes=2\nsrun torchrun t.py\n"
_BUCKET: Final = _STAGE.replace("1}", '1, "reduce_bucket_size": SIZE}')
_BY_SRUN: Final = (
    "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\nsrun python "
    "lib/train/main.py --deepspeed"
)
_OLD_NAME: Final = (
    '{"train_batch_size": "auto", "bfloat16": {"enabled": "auto"}, '
    '"zero_optimization": {"stage": 1}}'
)
_OPTIMIZER: Final = """{"train_batch_size": "auto", "zero_optimization": {"stage": 1},
"optimizer": {"type": "AdamW", "params": {"lr": 1e-6}}}"""
_OF_TRL: Final = (
    "#!/bin/bash\ndeepspeed run.py --deepspeed ds.json --output_dir o "
    "--per_device_train_batch_size 1\n"
)
_EVALUATES_WITH: Final = f"{_OF_TRL[:-1]} --do_train\n"
_DECAYS: Final = """{"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 1e-4}}}"""
_YAML: Final = "train_batch_size: 8\nzero_optimization:\n  stage: 3\n"
_NO_BATCH: Final = '{"zero_optimization": {"stage": 1}, "gradient_clipping": 1.0}'
_FOREIGN: Final = (
    '{"zero_optimization": {"stage": 1}, "lora_rank": 8, "seed": 1, "epochs": 2, '
    '"prompts": [], "ema": false}'
)
_TEMPLATE: Final = _STAGE.replace(
    "{", '{"fp16": {"enabled": FP16_ON\n}, "bf16": {"enabled": BF16_ON\n}, ', 1
)
_LOGGED: Final = '{{"train_batch_size": 8, "comms_logger": {{"enabled": true, "prof_all": {}}}}}'
_RECORDED: Final = (
    '{"output_dir": "out", "per_device_train_batch_size": 1, '
    '"evaluation_strategy": "no", "hub": "<class \'hub.Hub\'>"}'
)
_ALONE: Final = "compute_environment: LOCAL_MACHINE\ndistributed_type: no\nnum_processes: {}\n"
_EVALUATES: Final = (
    "#!/bin/bash\npython run.py --output_dir out --do_train --evaluation_strategy steps\n"
)
_ARGUMENTS: Final = (
    "output_dir: out\nper_device_train_batch_size: 1\nnum_train_epochs: 1\nsave_steps: 5\n"
)
_PAIRED: Final = f"{_ARGUMENTS}deepspeed: ds.json\n"
_ENDING: Final = _STAGE.replace(
    "{", '{"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 1}}, ', 1
)
_BEST: Final = (
    "#!/bin/bash\ntorchrun t.py --output_dir out --per_device_train_batch_size 1 "
    "--load_best_model_at_end True\n"
)
_EPOHC: Final = (
    f"{_BEST.splitlines()[0]}\ntorchrun t.py --output_dir out --save_steps 5 "
    "--save_strategy epohc\n"
)
_AMP: Final = _STAGE.replace("{", '{"amp": {"enabled": false}, ', 1)
_OF_FP16: Final = _STAGE.replace("{", '{"bf16": {"enabled": true, "loss_scale": 0}, ', 1)
_OF_ONE: Final = (
    "import argparse\nparser = "
    "argparse.ArgumentParser()\nparser.add_argument('--a')\nparser.parse_args()\n"
)
_ON_NODES: Final = (
    "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes NODES "
    f"pretrain_gpt.py{_RUN} --pipeline-model-parallel-size 16\n"
)
_MOCK: Final = " --mock-data --data-path d --train-iters 9"
_TRAILING: Final = _STAGE.replace("1}}", "1},}")
_IN_BLOCK: Final = """#!/bin/bash
P="${P:-python}"
"$P" a.py \\
  --b "$B" \\
  --c "$C"

if [[ "$RUN" == "1" ]]; then
  "$P" c.py --d 1
  "$P" e.py --d 1
fi
"""
_STEP_OF_4: Final = """#!/bin/bash
#SBATCH --nodes=5
srun --nodes=4 --ntasks=4 --nodelist="$FOUR" \
bash -c "accelerate launch --num_processes 32 --num_machines 4 t.py"
"""
_OF_TRAINER: Final = (
    "parser = HfArgumentParser(Own)\nclass Own(TrainingArguments):\n    cache_dir: str = field()\n"
)
_RATE: Final = f"{_ARGUMENTS}learning_rate: 1e-5\n"
_MICRO: Final = '{"train_micro_batch_size_per_gpu": 2, "gradient_clipping": 1.0}'
_LOGS: Final = "#!/bin/bash\n#SBATCH --output=logs/%j.out\n"
_TASKS: Final = "#!/bin/bash\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-task=8\n"
_EMPTY = '#!/bin/bash\nX=""\ntorchrun '
_FILLED_IN: Final = """#!/bin/bash
address=  # of the first node
command="torchrun --nnodes=1 --nproc_per_node=8 --master_addr=${address} \
--rdzv_endpoint=${address}:10086 run.py"
$command
"""
_VISIBLE: Final = "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES={}\ndeepspeed --num_gpus 2 train.py\n"
_LAUNCHER: Final = """LAUNCHER="accelerate launch --num_processes 16 --num_machines 2 \
--rdzv_backend {backend} \\
  --main_process_ip $HEAD --main_process_port 29500 --machine_rank $SLURM_PROCID"
export CMD="$LAUNCHER train.py"
srun $CMD
"""
_EVALUATED: Final = """#!/bin/bash
ARGS="evaluate.py --mode inference"
run="deepspeed --hostfile {} $ARGS"
eval $run
"""
_LIGHTNING: Final = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
cat <<EOT > ds.json
{{"zero_optimization": {{"stage": 2,}}}}
EOT
export {}=ds.json
srun python train.py --strategy deepspeed_stage_2
"""


def severities(folder: Path, files: Mapping[str, str], rule: str) -> list[str]:
    """How severe the findings of a rule on these files are."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return [
        finding.severity.value
        for finding in dsgen.validate(folder, strict=True)
        if finding.rule == rule
    ]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        pytest.param(
            "SLM023",
            "#!/bin/bash\nsrun --quotatype=spot python train.py\n",
            ["note"],
            id="plug-in's option",
        ),
        pytest.param(
            "SLM023",
            "#!/bin/bash\nsrun --ntaks=2 python train.py\n",
            ["error"],
            id="a slip of an option",
        ),
        pytest.param(
            "SLM058", f"{_JOB}python train.py $SLURM_ARRAY_TASK_ID\n", ["note"], id="sbatch --array"
        ),
        pytest.param(
            "SLM058",
            "#!/bin/bash\n#SBATCH --gres=gpu:8\ntorchrun "
            "--nproc-per-node=$SLURM_GPUS_PER_NODE train.py\n",
            ["error"],
            id="GPUs are asked for in another way",
        ),
        pytest.param(
            "SLM064",
            f"{_JOB}srun --jobid=7 --ntasks-per-node=4 python train.py\n",
            [],
            id="another job",
        ),
        pytest.param(
            "SLM064", f"{_JOB}srun --ntasks-per-node=4 python train.py\n", ["error"], id="this job"
        ),
        pytest.param(
            "SLM065",
            f"{_JOB}srun --jobid=7 --nodes=3 python train.py\n",
            [],
            id="nodes of another job",
        ),
        pytest.param(
            "SLM067",
            f"{_JOB}export CUDA_VISIBLE_DEVICES=9\npython t.py\n",
            ["warning"],
            id="not confined",
        ),
        pytest.param(
            "LNCH035",
            f"{_JOB}export MASTER_PORT=$[RANDOM%9+50000]\npython t.py\n",
            [],
            id="arithmetic",
        ),
        pytest.param(
            "LNCH035",
            f"{_JOB}export MASTER_PORT=$[9 + 70000]\npython t.py\n",
            ["error"],
            id="its value",
        ),
        pytest.param(
            "BATCH008",
            _LIGHTNING.format("PL_DEEPSPEED_CONFIG_PATH"),
            [],
            id="Lightning reads SLURM_*",
        ),
        pytest.param(
            "OPT003",
            _LIGHTNING.format("PL_DEEPSPEED_CONFIG_PATH"),
            [],
            id="Lightning sets the clipping",
        ),
        pytest.param(
            "BATCH004",
            _LIGHTNING.format("PL_DEEPSPEED_CONFIG_PATH"),
            [],
            id="Lightning sets the batch",
        ),
        pytest.param(
            "PREC008",
            _LIGHTNING.format("PL_DEEPSPEED_CONFIG_PATH"),
            [],
            id="Lightning sets the precision",
        ),
        pytest.param(
            "PARSE002",
            _LIGHTNING.format("PL_DEEPSPEED_CONFIG_PATH"),
            ["error"],
            id="Lightning reads JSON",
        ),
        pytest.param(
            "BATCH004", _LIGHTNING.format("MY_CONFIG"), ["error"], id="DeepSpeed needs a batch"
        ),
        pytest.param(
            "BATCH008", _LIGHTNING.format("MY_CONFIG"), ["warning"], id="others need their ranks"
        ),
        pytest.param(
            "OPT003", _LIGHTNING.format("MY_CONFIG"), ["note"], id="others need the clipping"
        ),
        pytest.param(
            "NCCL003",
            "#!/bin/bash\nexport NCCL_BLOCKING_WAIT=1\ntorchrun t.py\n",
            ["note"],
            id="an old name",
        ),
        pytest.param(
            "NCCL003",
            "#!/bin/bash\nexport NCCL_BLOCKING_WAIT=1 TORCH_NCCL_BLOCKING_WAIT=1\ntorchrun t.py\n",
            [],
            id="both names, for releases old and new",
        ),
        pytest.param(
            "LNCH035",
            "#!/bin/bash\nexport MASTER_PORT=auto\ntorchrun t.py\n",
            ["error"],
            id="its port",
        ),
        pytest.param(
            "LNCH035",
            "#!/bin/bash\nexport MASTER_PORT=auto\ntorchrun --master_port 24564 t.py\n",
            ["note"],
            id="the launcher has another port",
        ),
        pytest.param(
            "SUB001",
            "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --gpus-per-node=1\nmpirun -n 2 python t.py\n",
            ["note"],
            id="processes of MPI may share a GPU",
        ),
        pytest.param(
            "LNCH025",
            '#!/bin/bash\nRUN="torchrun --nproc_per_node=8 ${1} --type ca"\n$RUN --config a.py\n',
            ["note", "note"],
            id="a program that isn't known",
        ),
        pytest.param(
            "LNCH001",
            f"{_JOB}if [ $SLURM_JOB_NUM_NODES -gt 1 ]; then srun torchrun t.py; else "
            "deepspeed t.py; fi\n",
            ["note"],
            id="a branch for one node",
        ),
        pytest.param(
            "SLM009",
            f"{_JOB}export {_LAUNCHER.format(backend='c10d')}",
            [],
            id="c10d ignores the rank",
        ),
        pytest.param(
            "SLM009",
            f"{_JOB}export {_LAUNCHER.format(backend='static')}",
            ["error"],
            id="static reads it",
        ),
        pytest.param(
            "SLM002",
            f"{_JOB}srun python train.py\n",
            ["note"],
            id="a program that starts a node's ranks",
        ),
        pytest.param(
            "SLM013", f"{_JOB}srun python a.py --lr 1\n", ["warning"], id="a step that trains"
        ),
        pytest.param("SLM013", f"{_JOB}srun python train.py\n", ["note"], id="a step of Python's"),
        pytest.param(
            "SLM013",
            f"{_JOB}export MASTER_ADDR=a\nsrun python train.py\n",
            ["warning"],
            id="ranks that meet",
        ),
        pytest.param(
            "SLM021",
            f'{_JOB}DATA=""\nMOUNTS="$DATA:/data"\nsrun '
            '--container-mounts="$MOUNTS" python train.py\n',
            ["note"],
            id="a mount to be filled in",
        ),
        pytest.param(
            "SLM021",
            f"{_JOB}srun --container-mounts=:/data python train.py\n",
            ["error"],
            id="half a mount",
        ),
        pytest.param(
            "SLM018",
            "#!/bin/bash\nrun --secret S2_KEY=joes_S2_KEY train.py\n",
            [],
            id="the name of a stored secret",
        ),
        pytest.param(
            "SLM018",
            "#!/bin/bash\nrun --secret S2_KEY=0f3a9c51d7e24b68 t.py\n",
            ["note"],
            id="its value",
        ),
        pytest.param(
            "SLM018", "#!/bin/bash\nserve --api-key token-abc123\n", [], id="a key of an example"
        ),
        pytest.param(
            "SLM018",
            '#!/bin/bash\nheader_token="X-aws-ec2-metadata-token"\n',
            [],
            id="a header's name",
        ),
        pytest.param(
            "SLM018",
            "#!/bin/bash\nexport WANDB_API_KEY=0f3a9c51d7e24b68\n",
            ["warning"],
            id="a secret written out",
        ),
        pytest.param(
            "SLM005",
            f"{_JOB}#SBATCH --gres=gpu:8\nsrun hostname\n",
            ["note"],
            id="the same in two forms",
        ),
        pytest.param(
            "SLM005",
            f"{_JOB}#SBATCH --gres=gpu:4\nsrun hostname\n",
            ["warning"],
            id="two numbers of GPUs",
        ),
        pytest.param(
            "SLM008",
            f"{_JOB}MASTER_ADDR=$(hostname)\nsrun python train.py\n",
            ["note"],
            id="a name that may be found",
        ),
        pytest.param(
            "SLM008",
            f"{_JOB}FIRST=$(hostname -i)\nsrun torchrun --master_addr=$FIRST train.py\n",
            ["note"],
            id="an address that is one in most clusters",
        ),
        pytest.param(
            "SLM051",
            "#!/bin/bash\n#SBATCH -n 1\ntorchrun train.py\n",
            ["note"],
            id="sbatch --gpus-per-node",
        ),
        pytest.param(
            "SLM028",
            "#!/bin/bash\n#SBATCH --nodes={{ nodes }}\nsrun hostname\n",
            [],
            id="a template's number",
        ),
        pytest.param(
            "SLM055",
            "#!/bin/bash\n#SBATCH --account=<account>\n#SBATCH "
            "--partition=your-partition\nsrun hostname\n",
            ["note"],
            id="placeholders are one note",
        ),
        pytest.param(
            "SLM027",
            "#!/bin/bash\n#SBATCH <SLURM OPTIONS>\nsrun hostname\n",
            ["note"],
            id="options to come",
        ),
        pytest.param(
            "SLM027",
            "#!/bin/bash\n#SBATCH -p { partition }\nsrun hostname\n",
            ["note"],
            id="a name in braces",
        ),
        pytest.param(
            "SLM020",
            f"{_LOGS}# Usage: mkdir -p logs; sbatch it\nsrun hostname\n",
            ["note"],
            id="told to make it",
        ),
        pytest.param(
            "SLM020",
            f"{_LOGS}# mkdir -p out\nsrun hostname\n",
            ["warning"],
            id="told to make another folder",
        ),
        pytest.param("LNCH040", _FILLED_IN, [], id="a value of variables, one to be filled in"),
        pytest.param(
            "LNCH040",
            "#!/bin/bash\ntorchrun --nnodes= 1 train.py\n",
            ["error"],
            id="a value after a blank",
        ),
        pytest.param(
            "LNCH040",
            f"{_EMPTY}--nnodes --standalone train.py $X\n",
            ["error"],
            id="an empty extra",
        ),
        pytest.param(
            "LNCH040",
            f"{_EMPTY}--nnodes ${{X:-}} --standalone train.py\n",
            ["note"],
            id="an empty value",
        ),
        pytest.param(
            "SLM044",
            f"{_TASKS}#SBATCH --nodes=$N\nsrun hostname\n",
            [],
            id="nodes that SLM031 refuses",
        ),
        pytest.param(
            "SLM044",
            f"{_TASKS}#SBATCH --nodes=1-2\nsrun hostname\n",
            ["error"],
            id="a range of nodes",
        ),
        pytest.param(
            "LNCH006",
            "#!/bin/bash\ndeepspeed --num_nodes 2 train.py\n",
            ["note"],
            id="/job/hostfile",
        ),
        pytest.param(
            "LNCH030",
            "#!/bin/bash\ntorchrun --nnodes 2 --node_rank 0 --master_addr 127.0.0.1 train.py\n",
            ["warning"],
            id="the first node, and no line for the second",
        ),
        pytest.param(
            "LNCH030",
            '#!/bin/bash\ntorchrun --nnodes 2 --node_rank "$RANK" --master_addr '
            "127.0.0.1 train.py\n",
            ["error"],
            id="a script of every node",
        ),
        pytest.param(
            "LNCH041",
            "#!/bin/bash\ntorchrun t.py\n    ${A[@]} \\\n    ${B[@]}\n",
            ["error"],
            id="words below a command",
        ),
        pytest.param(
            "LNCH041",
            "#!/bin/bash\ntorchrun t.py --x 1\n    2>&1 | tee log\n",
            ["warning"],
            id="a pipe below a command",
        ),
        pytest.param(
            "LNCH041",
            "#!/bin/bash\ntorchrun t.py --x 1\n${AFTER[@]}\n",
            [],
            id="a command of variables",
        ),
        pytest.param(
            "LNCH041",
            "#!/bin/bash\ntorchrun t.py --x=1\\ \n",
            ["error"],
            id="a blank after the last word",
        ),
        pytest.param(
            "LNCH041",
            '#!/bin/bash\nbash -c "torchrun t.py --x 1\n  --y 2"\n',
            ["error"],
            id="options below quoted text",
        ),
        pytest.param("LNCH030", _ELASTIC.format("1:2"), ["note"], id="one node is enough"),
        pytest.param("LNCH030", _ELASTIC.format("2:4"), ["error"], id="at least two nodes"),
        pytest.param("SLM007", _NOTES.format(""), [], id="notes that sbatch takes nothing of"),
        pytest.param(
            "SLM007", _NOTES.format("#!/bin/bash\n"), ["error"], id="a script that sbatch takes"
        ),
        pytest.param("SLM032", _NOTES.format(""), ["note"], id="notes of commands"),
        pytest.param(
            "SLM032", "#SBATCH --nodes=2\nsrun torchrun t.py\n", ["error"], id="a script without #!"
        ),
        pytest.param(
            "NCCL002",
            f"{_JOB}export FI_PROVIDER=efa\nexport NCCL_IB_DISABLE=1\nsrun hostname\n",
            [],
            id="EFA",
        ),
        pytest.param(
            "NCCL002",
            f"{_JOB}export NCCL_IB_DISABLE=1\nsrun hostname\n",
            ["note"],
            id="an unknown network",
        ),
        pytest.param(
            "NCCL006", "#!/bin/bash\nexport NCCL_IBEXT_DISABLE=1\n", [], id="a plug-in's variable"
        ),
        pytest.param(
            "NCCL001",
            "#!/bin/bash\nexport NCCL_SOCKET_IFNAME=lo\n",
            ["note"],
            id="a job of one node, maybe",
        ),
        pytest.param(
            "NCCL007",
            "#!/bin/bash\nexport NCCL_P2P_DISABLE=1\n",
            ["note"],
            id="machines that need it",
        ),
        pytest.param(
            "ENV001",
            "#!/bin/bash\nHF_HOME=/data/hf\npython train.py\n",
            ["note"],
            id="exported before, maybe",
        ),
        pytest.param(
            "LNCH036",
            "#!/bin/bash\ntorchrun train.py --nnodes 2\n",
            ["note"],
            id="the script's own, maybe",
        ),
        pytest.param(
            "LNCH025",
            "#!/bin/bash\ntorchrun --quux 1 train.py\n",
            ["note"],
            id="another release's option",
        ),
        pytest.param(
            "LNCH025", "#!/bin/bash\ntorchrun --nnode 1 train.py\n", [], id="an abbreviation"
        ),
        pytest.param(
            "LNCH025",
            "#!/bin/bash\ntorchrun --nproc-pernode 1 x.py\n",
            ["error"],
            id="a misspelt option",
        ),
        pytest.param(
            "SLM036",
            f"{_JOB}#SBATCH --time=24:00\nsrun hostname\n",
            ["warning"],
            id="24 hours are meant",
        ),
        pytest.param(
            "SLM036",
            f"{_JOB}#SBATCH --time=960:00\nsrun hostname\n",
            ["note"],
            id="960 minutes are meant",
        ),
        pytest.param(
            "SLM036",
            f"{_JOB}#SBATCH --time=10:00\nsrun hostname\n",
            ["note"],
            id="10 minutes, maybe",
        ),
        pytest.param(
            "SLM035",
            f"{_JOB}# SBATCH --time=10:00\nsrun hostname\n",
            ["note"],
            id="left out, maybe",
        ),
        pytest.param(
            "SLM035", f"{_JOB}#SBTACH --time=10:00\nsrun hostname\n", ["warning"], id="a slip"
        ),
        pytest.param(
            "SLM035",
            f'{_JOB}#SBTACH --export=A="x y"\nsrun hostname\n',
            ["warning"],
            id="a quote in a word",
        ),
        pytest.param(
            "SLM035",
            f"{_JOB}#SBTACH --comment=don\\'t\nsrun hostname\n",
            ["warning"],
            id="an escaped quote",
        ),
        pytest.param(
            "SLM035",
            f"{_JOB}#SBTACH --mail-type=END, FAIL\nsrun hostname\n",
            ["warning"],
            id="a split list",
        ),
        pytest.param(
            "LNCH029",
            f"{_JOB}{_ON}$SLURM_JOB_NODELIST {_FIRST}",
            ["error"],
            id="the list of all nodes",
        ),
        pytest.param(
            "LNCH029", f"{_JOB}{_ON}$NODE --nodes=2 {_FIRST}", ["error"], id="nodes by their number"
        ),
        pytest.param("LNCH029", f"{_JOB}{_ON}$NODE {_FIRST}", [], id="nodes that aren't known"),
        pytest.param(
            "SLM011",
            f"{_JOB}#SBATCH --time=UNLIMITED\nsrun hostname\n",
            ["note"],
            id="a site's limits",
        ),
        pytest.param("LNCH024", _VISIBLE.format("0,1"), [], id="the GPUs that are taken anyway"),
        pytest.param("LNCH024", _VISIBLE.format("1,0"), ["warning"], id="in another order"),
        pytest.param("LNCH024", _VISIBLE.format("0"), ["warning"], id="fewer than are taken"),
        pytest.param("MDS026", _BRANCHES, [], id="a value of an option of one branch, DeepSpeed"),
        pytest.param(
            "LNCH025", _EVALUATED.format("<your hosts>"), [], id="a placeholder, no redirections"
        ),
        pytest.param(
            "LNCH025", _EVALUATED.format("hosts >log --quux"), ["note"], id="a redirection"
        ),
        pytest.param(
            "LNCH031",
            "#!/bin/bash\ntorchrun --nnodes NUM_NODES train.py\n",
            ["note"],
            id="a number to come",
        ),
        pytest.param(
            "LNCH031", "#!/bin/bash\ntorchrun --nnodes two train.py\n", ["error"], id="no number"
        ),
        pytest.param(
            "LNCH035",
            "#!/bin/bash\nexport MASTER_PORT=xxxx\npython t.py\n",
            ["note"],
            id="a port to come",
        ),
        pytest.param(
            "SLM034",
            "#!/bin/bash\n#SBATCH --cpus-per-task=N\nsrun hostname\n",
            ["note"],
            id="cores to come",
        ),
        pytest.param(
            "SLM034",
            "#!/bin/bash\n#SBATCH --cpus-per-task=four\nsrun hostname\n",
            ["error"],
            id="no cores",
        ),
        pytest.param(
            "SLM010",
            "#!/bin/bash\n#SBATCH --time=HH:MM:SS\nsrun hostname\n",
            ["note"],
            id="a time to come",
        ),
        pytest.param(
            "SLM025",
            "#!/bin/bash\n#SBATCH --mem=XXG\nsrun hostname\n",
            ["note"],
            id="memory to come",
        ),
        pytest.param(
            "MLM048",
            f"#!/bin/bash\npython pretrain_gpt.py{_RUN} --lr LR\n",
            ["note"],
            id="a rate to be filled in",
        ),
        pytest.param(
            "MLM048",
            f"#!/bin/bash\npython pretrain_gpt.py{_RUN} --lr big\n",
            ["error"],
            id="no rate",
        ),
        pytest.param(
            "HF025",
            "#!/bin/bash\npython t.py --output_dir out --do_train --learning_rate {lr} "
            "--num_train_epochs N\n",
            ["note", "note"],
            id="arguments to be filled in",
        ),
        pytest.param(
            "SLM065",
            "#!/bin/bash\n#SBATCH --exclusive\nsrun --nodes=2 python t.py\n",
            [],
            id="sbatch --nodes=2",
        ),
        pytest.param("MDS029", _T5.format(""), ["error"], id="word pieces have no sentinels"),
        pytest.param("MDS029", _T5.format("--vocab-extra-ids 100"), [], id="sentinels are added"),
        pytest.param(
            "MDS029",
            _T5.format("--tokenizer-type HFTokenizer"),
            [],
            id="a tokenizer with sentinels, maybe",
        ),
        pytest.param(
            "SLM065",
            f"{_JOB}srun --nodes=3 python t.py\n",
            ["error"],
            id="more nodes than the job's",
        ),
        pytest.param(
            "SLM013",
            f"{_JOB}srun bash -c 'apt-get update; load; ./all_reduce_perf'\n",
            ["note"],
            id="a benchmark",
        ),
        pytest.param(
            "SLM013",
            f"{_JOB}srun bash -c 'apt-get update; torchrun t.py'\n",
            ["warning"],
            id="a training",
        ),
        pytest.param("SLM013", f"{_JOB}srun bash setup.sh\n", ["note"], id="a machine's setup"),
        pytest.param(
            "NCCL006", "#!/bin/bash\nexport NCCL_SHARP_DISABLE=1\n", [], id="the SHARP plug-in's"
        ),
        pytest.param("MLM048", _BRANCHES, [], id="a value of an option of one branch"),
    ],
)
def test_a_script_is_judged_by_what_is_known(
    rule: str, text: str, expected: list[str], tmp_path: Path
) -> None:
    """What somebody else may set, fill in or read is at most a note; what is certain stays an error
    or warning.
    """
    assert severities(tmp_path, {"job.sh": text}, rule) == expected


_TRAINER: Final = (
    "#!/bin/bash\ndeepspeed train.py --deepspeed ds.json --output_dir out --do_train\n"
)


@pytest.mark.parametrize(
    ("rule", "config", "expected"),
    [
        pytest.param(
            "HF013", '{"autotuning": {"enabled": true}}', [], id="the autotuner adds the section"
        ),
        pytest.param(
            "HF013", '{"autotuning": {"enabled": false}}', ["error"], id="nothing adds the section"
        ),
    ],
)
def test_a_config_is_judged_by_what_is_known(
    rule: str, config: str, expected: list[str], tmp_path: Path
) -> None:
    """What the autotuner adds, and what only training needs where maybe nothing trains, is at most
    a note.
    """
    files = {"ds.json": config, "job.sh": _TRAINER}
    assert severities(tmp_path, files, rule) == expected


@pytest.mark.parametrize(
    ("rule", "files", "expected"),
    [
        pytest.param(
            "LNCH030",
            {
                "node0.sh": "#!/bin/bash\ntorchrun --nnodes 2 --node_rank 0 --master_addr "
                "127.0.0.1 train.py\n",
                "node1.sh": "#!/bin/bash\ntorchrun --nnodes 2 --node_rank 1 --master_addr "
                "10.0.0.1 train.py\n",
            },
            [],
            id="a script for each of two nodes",
        ),
        pytest.param(
            "PARSE003",
            {
                "job.sh": "#!/bin/bash\npython train.py --lr 1 --deepspeed ds_config.json\n",
                "train.py": "import torch\n",
            },
            ["warning"],
            id="not beside the program",
        ),
        pytest.param(
            "PARSE003",
            {
                "job.sh": "#!/bin/bash\npython eval.py --deepspeed ds_config.json\n",
                "eval.py": "import torch\n",
            },
            ["note"],
            id="not beside a program that isn't known to train",
        ),
        pytest.param(
            "PARSE003",
            {
                "job.sh": "#!/bin/bash\ntorchrun train.py --deepspeed ds.json\n",
                "train.py": "write('ds.json')\n",
            },
            ["note"],
            id="the program may write it",
        ),
        pytest.param(
            "PARSE003",
            {
                "run/job.sh": "#!/bin/bash\nR=/home/me/x\npython $R/t.py --deepspeed "
                "$R/conf/zro3.json\n",
                "conf/zero3.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}',
            },
            ["error"],
            id="a slip in an absolute path",
        ),
        pytest.param(
            "PARSE003",
            {
                "job.sh": "#!/bin/bash\npython t.py --ds_config_path ds_zer2o.json\n",
                "ds_zero2.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}',
            },
            ["error"],
            id="a letter and a digit that changed places",
        ),
        pytest.param(
            "HF024",
            {
                "job.sh": "#!/bin/bash\npython t.py --output_dir o "
                "--evaluation_sstrategy no --do_train\n",
                "t.py": "import "
                "transformers\ntransformers.HfArgumentParser(A).parse_args_into_dataclasses()\n",
            },
            ["error"],
            id="a slip in an older name",
        ),
        pytest.param(
            "OPT002",
            {
                "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2}, '
                '"max_grad_norm": 1.0}',
                "job.sh": "#!/bin/bash\ndeepspeed t.py --deepspeed_config ds.json\n",
                "t.py": "clip = hasattr(args, 'max_grad_norm')\n",
            },
            ["error"],
            id="an argument of the same name",
        ),
        pytest.param(
            "OPT002",
            {
                "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2}, '
                '"max_grad_norm": 1.0}',
                "job.sh": "#!/bin/bash\ndeepspeed t.py --deepspeed_config ds.json\n",
                "t.py": "clip = config.get('max_grad_norm')\n",
            },
            ["warning"],
            id="a key that the program reads",
        ),
        pytest.param(
            "LNCH042",
            {
                "job.sh": "#!/bin/bash\ndeepspeed t.py --deepspeed --deepspee_dconfig ds.json\n",
                "t.py": "import argparse, deepspeed\nargparse.ArgumentParser()\np = "
                "argparse.ArgumentParser()\n"
                "deepspeed.add_config_arguments(p).parse_args()\n",
            },
            ["error"],
            id="a slip in an option that DeepSpeed adds",
        ),
        pytest.param(
            "BATCH001",
            {
                "ds.json": '{"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2, '
                '"gradient_accumulation_steps": 1, "zero_optimization": {"stage": 2}}',
                "a.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\n"
                "deepspeed_config:\n  deepspeed_config_file: ds.json\n",
            },
            ["error"],
            id="a batch that no number of replicas makes right",
        ),
        pytest.param(
            "SUB011",
            {
                "job.sh": "#!/bin/bash\ntorchrun t.py --config conf/trian.yaml\n",
                "conf/train.yaml": "lr: 1\n",
            },
            ["error"],
            id="a slip in the name of YAML",
        ),
        pytest.param(
            "SUB011",
            {
                "job.sh": "#!/bin/bash\ntorchrun t.py --save conf/other.yaml\n",
                "conf/train.yaml": "lr: 1\n",
            },
            [],
            id="YAML that may be written",
        ),
        pytest.param(
            "LNCH041",
            {"job.sh": '#!/bin/bash\nA="\n  --x 1 \\ \n  --y 2"\ntorchrun t.py $A\n'},
            ["error"],
            id="a blank within words of a launch",
        ),
        pytest.param(
            "PARSE016",
            {
                "ds.json": '{\n"train_batch_size": 8,\n"zero_optimization": {"stage": 2},\n"amp": '
                '{"level: "O2"}\n}\n'
            },
            ["error"],
            id="a quote is missing before capitals",
        ),
        pytest.param(
            "PARSE004",
            {
                "ds_config.json": '{"fp16": {"enabled": false}, "bf16": {"enabled": true}, '
                '"steps_per_print": 2000, '
                '"per_device_train_batch_size": 1, "wall_clock_breakdown": false}'
            },
            ["error"],
            id="a key of the Trainer's",
        ),
        pytest.param(
            "OPT012",
            {
                "ds_config.json": '{"train_batch_size": 8, "optimizer": {"type": "AdamW", '
                '"params": {"lr": 1e-3}}, '
                '"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": [100]}}}'
            },
            ["error"],
            id="a list of steps",
        ),
        pytest.param(
            "AML003",
            {"job.yml": f"{_AML}environment: file:./env.yml\n", "env.yml": "image: a\n"},
            [],
            id="its file",
        ),
        pytest.param(
            "AML022",
            {"job.yml": f"{_AML}environment: file:./env.yml\n"},
            ["error"],
            id="no such file",
        ),
        pytest.param(
            "AML052",
            {"job.yml": f"{_AML}environment: < environment >\n"},
            ["note"],
            id="to be filled in",
        ),
        pytest.param(
            "AML003", {"job.yml": f"{_AML}environment: env\n"}, ["error"], id="without azureml:"
        ),
        pytest.param(
            "AML052",
            {"job.yml": f"{_AML}environment: azureml:a:1\ncompute: <name>\n"},
            ["note"],
            id="a compute to come",
        ),
        pytest.param(
            "AML021",
            {"job.yml": f"{_AML}environment: azureml:a:1\ncode: src\n"},
            ["error"],
            id="no code",
        ),
        pytest.param(
            "AML021",
            {
                "job.yml": f"{_AML}environment: azureml:a:1\ncode: src\n",
                "README.md": "Clone it into `src`.\n",
            },
            ["note"],
            id="code that a README has one make",
        ),
        pytest.param(
            "AML021",
            {"job.yml": f"{_AML}environment: azureml:a:1\ncode: ../x\n"},
            ["note"],
            id="code of elsewhere",
        ),
        pytest.param(
            "SLM004",
            {"job.sh": _EACH, "train.py": 'print("rank %s" % os.environ["LOCAL_RANK"], "100%")\n'},
            ["warning"],
            id="a rank in a text",
        ),
        pytest.param(
            "SLM004",
            {"job.sh": _EACH, "train.py": 'gpu = int(os.environ.get("LOCAL_RANK", "0")) % count\n'},
            ["note"],
            id="a rank modulo the GPUs",
        ),
    ],
)
def test_a_job_is_judged_by_what_is_known(
    rule: str, files: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    """A placeholder, and a folder that may still be made, are notes; what can't work is an
    error.
    """
    assert severities(tmp_path, files, rule) == expected


@pytest.mark.parametrize(
    ("rule", "files", "expected"),
    [
        pytest.param(
            "OPT003", {"configs/ds.json": _STAGE}, ["note"], id="nobody adds the clipping"
        ),
        pytest.param(
            "PARSE007", {"ds.json": _AUTO, "job.sh": _NAMED}, ["error"], id="nobody fills it in"
        ),
        pytest.param(
            "PARSE007",
            {"ds.json": _AUTO, "job.sh": _NAMED, "methods/train.py": _ADDS.format("==")},
            ["error"],
            id="the program asks for it",
        ),
        pytest.param(
            "PARSE007",
            {"ds.json": _AUTO, "job.sh": _NAMED, "methods/train.py": _ADDS.format("=")},
            [],
            id="the program sets it",
        ),
        pytest.param(
            "OPT003",
            {"ds.json": _MICRO.replace(', "gradient_clipping": 1.0', "")},
            ["note"],
            id="unnamed",
        ),
        pytest.param(
            "BATCH004",
            {"ds.json": _NO_BATCH, "job.sh": _NAMED, "train.py": _ADDS.format("=")},
            [],
            id="the program adds the batch",
        ),
        pytest.param(
            "BATCH004",
            {"ds.json": _NO_BATCH, "job.sh": _NAMED},
            ["error"],
            id="nobody adds the batch",
        ),
        pytest.param(
            "PARSE021",
            {
                "ds.json": _OLD_NAME,
                "run.sh": _EVALUATES_WITH,
                "requirements.txt": "transformers==4.28.1",
            },
            ["note"],
            id="a Trainer that leaves what is auto to DeepSpeed",
        ),
        pytest.param(
            "PARSE021",
            {"ds.json": _OLD_NAME, "run.sh": _EVALUATES_WITH},
            ["error"],
            id="one that checks it",
        ),
        pytest.param("HF025", {"run.sh": _EPOHC}, ["error"], id="no programs around"),
        pytest.param(
            "HF025",
            {"run.sh": _EPOHC, "t.py": "HfArgumentParser(A)\n"},
            ["error"],
            id="transformers' parser",
        ),
        pytest.param(
            "HF025",
            {"run.sh": _EPOHC, "t.py": "H4ArgumentParser(A)\nprint('--output_dir')\n"},
            ["error"],
            id="a parser after transformers'",
        ),
        pytest.param(
            "HF025",
            {"run.sh": _EPOHC, "other.py": "\n"},
            ["note"],
            id="a program that is elsewhere",
        ),
        pytest.param(
            "HF025",
            {"run.sh": _EPOHC, "t.py": "argparse.ArgumentParser().parse_known_args()\n"},
            ["note"],
            id="a program that starts another",
        ),
        pytest.param(
            "VER001",
            {"a/ds.json": _AMP, "t.py": 'open("b/ds.json")\n'},
            ["note"],
            id="a namesake in another folder",
        ),
        pytest.param(
            "VER001",
            {"b/ds.json": _AMP, "t.py": 'open("b/ds.json")\n'},
            ["warning"],
            id="named by its folder",
        ),
        pytest.param(
            "VER001",
            {"ds.json": _AMP, "t.py": 'open("/w/it/ds.json")\n'},
            ["warning"],
            id="of a clone's root",
        ),
        pytest.param(
            "VER001",
            {"ds.json": _AMP, "t.py": "", "t.sh": "ls ${A}zero${B}.json\n"},
            ["note"],
            id="a name that variables make whole",
        ),
        pytest.param(
            "HF001",
            {"ds.json": _OPTIMIZER, "run.sh": _OF_TRL, "run.py": "from trl import GRPOConfig\n"},
            [],
            id="a default of TRL's",
        ),
        pytest.param(
            "HF001",
            {
                "ds.json": _OPTIMIZER,
                "run.sh": _OF_TRL,
                "run.py": "HfArgumentParser(TrainingArguments)\n",
            },
            ["note"],
            id="a default of transformers",
        ),
        pytest.param(
            "LNCH024",
            {
                "run.sh": "#!/bin/bash\nexport CUDA_VISIBLE_DEVICES=0,1\ndeepspeed "
                "--num_gpus $N train.py\n"
            },
            ["note"],
            id="as many of the first devices, maybe",
        ),
        pytest.param(
            "SLM018", {"run.sh": "#!/bin/bash\nAPI_KEY=api-key-qwen3\n"}, [], id="words for a key"
        ),
        pytest.param(
            "BATCH004",
            {"ds.json": _NO_BATCH, "a/b/job.sh": _NAMED, "a/main.py": ""},
            ["note"],
            id="another folder than the one that the program is started in",
        ),
        pytest.param(
            "LNCH014",
            {
                "job.sh": _BY_SRUN,
                "lib/train/main.py": "",
                "lib/dist.py": "os.environ['SLURM_PROCID']",
            },
            ["note"],
            id="ranks that a module of the program finds out",
        ),
        pytest.param(
            "LNCH014",
            {"job.sh": _BY_SRUN, "lib/train/main.py": ""},
            ["error"],
            id="ranks without numbers",
        ),
        pytest.param(
            "OPT012",
            {"ds.json": _DECAYS, "train.py": ""},
            ["note"],
            id="a schedule that the program may replace",
        ),
        pytest.param(
            "OPT012",
            {"ds.json": _DECAYS, "job.sh": _NAMED},
            ["error"],
            id="a schedule that is built",
        ),
        pytest.param(
            "OPT009",
            {"ds.json": _DECAYS.replace("up", "pu"), "train.py": ""},
            ["error"],
            id="a slip in a schedule",
        ),
        pytest.param(
            "PARSE009",
            {"zero3.yaml": f"{_YAML}  sub_group_size: 1e9\n", "train.py": ""},
            ["note"],
            id="YAML that a program may read its own way",
        ),
        pytest.param(
            "PARSE011", {"8w6FzR68DS.json": '[{"id": "7e"}]'}, [], id="letters in a name of records"
        ),
        pytest.param(
            "PARSE011",
            {"ds_config.json": '[{"id": "7e"}]'},
            ["error"],
            id="a list named as a config",
        ),
        pytest.param(
            "PARSE002",
            {"ds.json": _MICRO.replace("}", ",}", 1), "train.py": ""},
            ["note"],
            id="a trailing comma that DeepSpeed reads",
        ),
        pytest.param(
            "PARSE007",
            {
                "ds.json": _AUTO,
                "src/job.sh": _OF_MODEL,
                "src/llama/main.py": "HfArgumentParser(TrainingArguments)\n",
            },
            [],
            id="a program of transformers' in a folder that a variable names",
        ),
        pytest.param(
            "PARSE007",
            {"ds.json": _AUTO, "job.sh": _NAMED, "main.py": f"{_ENGINE}HfArgumentParser(A)\n"},
            ["error"],
            id="a program that hands it to DeepSpeed",
        ),
        pytest.param(
            "PARSE007",
            {
                "ds.json": _AUTO,
                "job.sh": _NAMED,
                "main.py": f"# {_ENGINE[17:]}HfArgumentParser(A)\n",
            },
            [],
            id="a comment on DeepSpeed",
        ),
        pytest.param(
            "PARSE007",
            {
                "ds.json": _AUTO,
                "job.sh": _NAMED,
                "main.py": f"{_ENGINE}TrainingArguments('out', deepspeed=path)\n",
            },
            [],
            id="a program with an engine of its own beside the Trainer's",
        ),
        pytest.param(
            "PARSE002",
            {
                "ds.json": _STAGE.replace("{", "{// for 8 GPUs\n", 1),
                "job.sh": _NAMED,
                "main.py": f"from lightning import seed_everything\n{_ENGINE}",
            },
            ["note"],
            id="a comment that DeepSpeed reads, in a program with a function of Lightning's",
        ),
        pytest.param(
            "BATCH006",
            {"ds.json": _ONE, "job.sh": f"{_SPLIT}\n"},
            ["error"],
            id="a replica on each GPU",
        ),
        pytest.param(
            "BATCH006",
            {"ds.json": _ONE, "job.sh": f"{_SPLIT} --pipeline-model-parallel-size 8\n"},
            [],
            id="a model that a program which isn't here divides",
        ),
        pytest.param(
            "ZERO024",
            {"ds.json": _BUCKET.replace("SIZE", "500000000")},
            [],
            id="DeepSpeed's own size",
        ),
        pytest.param(
            "ZERO024",
            {"ds.json": _BUCKET.replace("SIZE", "1260000000")},
            ["note"],
            id="a large bucket",
        ),
        pytest.param(
            "ZERO024",
            {"ds.json": _BUCKET.replace("SIZE", "5000000000")},
            ["warning"],
            id="a huge bucket",
        ),
        pytest.param(
            "PARSE004",
            {"zero_settings.json": _FOREIGN},
            ["note"] * 5,
            id="ZeRO's settings by name and key",
        ),
        pytest.param(
            "PARSE004",
            {"default.json": _FOREIGN},
            [],
            id="a program's own config with some of DeepSpeed's keys",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _STAGE.replace("{", '{"monitor_config": 1, ', 1)},
            ["note"],
            id="like no key",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _STAGE.replace("{", '{"stage": 2, ', 1)},
            ["warning"],
            id="a key of another block",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _STAGE.replace("{", '{"stage": 1, ', 1)},
            ["note"],
            id="a key of another block that says the same",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _STAGE.replace("{", '{"comms_loger": {"verbose": false}, ', 1)},
            ["note"],
            id="a section of defaults, ignored",
        ),
        pytest.param(
            "PARSE004",
            {"ds.json": _STAGE.replace("{", '{"comms_loger": {"verbose": true}, ', 1)},
            ["error"],
            id="a section that would do something, ignored",
        ),
        pytest.param(
            "PARSE004",
            {
                "ds.json": _STAGE.replace("{", '{"comms_config": {"verbose": true}, ', 1),
                "t.py": 'c.get("comms_config")\n',
            },
            ["note"],
            id="a section that the program reads",
        ),
        pytest.param(
            "PARSE005",
            {
                "ds.json": _STAGE.replace("1}", '3, "sub_group_sise": 1e9}'),
                "requirements.txt": "deepspeed==0.6.5\n",
            },
            ["note"],
            id="a slip that an old release ignores, with the default",
        ),
        pytest.param(
            "PARSE005",
            {
                "ds.json": _STAGE.replace("1}", '3, "sub_group_sise": 1e8}'),
                "requirements.txt": "deepspeed==0.6.5\n",
            },
            ["error"],
            id="a slip that an old release ignores, with another value",
        ),
        pytest.param(
            "ZERO005",
            {
                "ds.json": _STAGE.replace("1}", '3, "cpu_offload_params": true}'),
                "requirements.txt": "deepspeed==0.6.5\n",
            },
            ["note"],
            id="a key that old releases read",
        ),
        pytest.param(
            "PREC001",
            {"ds.json": _TEMPLATE, "requirements.txt": "deepspeed==0.14.5\n"},
            [],
            id="a template",
        ),
        pytest.param(
            "PARSE005",
            {"ds.json": _STAGE.replace("1}", '1, "_why": "", "_when": ""}')},
            ["error"],
            id="comments in a block, once",
        ),
        pytest.param(
            "HF001",
            {"ds.json": _MICRO, "t.yaml": f"{_ARGUMENTS}deepspeed: ds.json\n"},
            ["error"],
            id="Trainer",
        ),
        pytest.param(
            "HF001",
            {"ds.json": _MICRO, "t.yaml": _PAIRED, "t.py": "HfDeepSpeedConfig(path)\n"},
            [],
            id="no Trainer compares them",
        ),
        pytest.param("OPT012", {"ds.json": _ENDING}, ["error"], id="no end"),
        pytest.param(
            "OPT012",
            {"ds.json": _ENDING, "t.py": 'cfg["scheduler"]["params"]["total_num_steps"] = steps\n'},
            [],
            id="the program sets the end",
        ),
        pytest.param(
            "HF030", {"job.sh": _BEST, "t.py": _OF_TRAINER}, ["error"], id="transformers' default"
        ),
        pytest.param(
            "HF030",
            {
                "job.sh": _BEST,
                "t.py": f'{_OF_TRAINER}    eval_strategy: str = field(default="steps")\n',
            },
            [],
            id="the program's own default",
        ),
        pytest.param(
            "MON004", {"ds.json": _LOGGED.format("false")}, [], id="a log of no operation"
        ),
        pytest.param(
            "MON004", {"ds.json": _LOGGED.format("true")}, ["warning"], id="a log of all operations"
        ),
        pytest.param("HF023", {"args.json": _RECORDED}, [], id="what a run wrote down of itself"),
        pytest.param(
            "ACC019", {"a.yaml": _ALONE.format(1)}, [], id="one process, as it is written"
        ),
        pytest.param(
            "ACC019", {"a.yaml": _ALONE.format(8)}, ["error"], id="eight processes that don't start"
        ),
        pytest.param(
            "MDS014",
            {"ds.json": _STAGE.replace("1}", "0}"), "job.sh": _MEGATRON},
            ["note"],
            id="a default that does the same",
        ),
        pytest.param(
            "MDS014",
            {
                "ds.json": _STAGE.replace("1}", "3}"),
                "job.sh": _MEGATRON.replace("size 64", "size 65536"),
            },
            ["warning"],
            id="a default that does something else",
        ),
        pytest.param(
            "MDS014",
            {"ds.json": _STAGE.replace("1}", "3}"), "job.sh": _MEGATRON},
            [],
            id="a default that does something else to a model that fits as a whole",
        ),
        pytest.param(
            "MLM047",
            {
                "pretrain_gpt.py": "",
                "megatron/arguments.py": _PARSER.replace("_size", "-size"),
                "job.sh": f"python $CHECKOUT/pretrain_gpt.py{_RUN} --chunked uniform\n",
            },
            ["warning"],
            id="a parser that another checkout's may be",
        ),
        pytest.param(
            "MLM047",
            {
                "pretrain_gpt.py": "",
                "megatron/arguments.py": _PARSER,
                "job.sh": f"python pretrain_gpt.py{_RUN}\n",
            },
            ["error"],
            id="an option that a fork's parser has in another spelling",
        ),
        pytest.param(
            "MLM047",
            {
                "pretrain_gpt.py": "",
                "megatron/arguments.py": f"from moe import add\n{_PARSER}\n    "
                "parser = add(parser)\n",
                "job.sh": f"python pretrain_gpt.py{_RUN}\n",
            },
            [],
            id="a parser that a package adds to",
        ),
        pytest.param(
            "SLM028",
            {"job.sh": "#!/bin/bash\n#SBATCH --nodes=?\n"},
            ["note"],
            id="a count to be filled in",
        ),
        pytest.param(
            "HF025",
            {"run.sh": _EPOHC, "t.py": "tyro.cli(A)\n"},
            ["note"],
            id="another package's parser",
        ),
        pytest.param(
            "HF001",
            {
                "ds.json": _MICRO,
                "run.sh": "#!/bin/bash\ndeepspeed t.py --deepspeed ds.json --output_dir o\n",
                "t.py": "HfArgumentParser(EvaluatorArguments)\n",
            },
            [],
            id="a config for no Trainer",
        ),
        pytest.param(
            "PREC003",
            {
                "ds.json": _OF_FP16,
                "README.md": "deepspeed==0.17.1 fails, deepspeed==0.14.5 works\n",
            },
            ["note"],
            id="prose with two releases",
        ),
        pytest.param(
            "PREC003",
            {"ds.json": _OF_FP16, "README.md": "pip install deepspeed==0.17.1\n"},
            ["error"],
            id="one",
        ),
        pytest.param(
            "LNCH042",
            {
                "run.sh": "#!/bin/bash\ncd /home/me/projects/other\npython t.py "
                "--b 1 --c 2 --a 3\n",
                "t.py": _OF_ONE,
            },
            [],
            id="a program of another project",
        ),
        pytest.param(
            "LNCH042",
            {"run.sh": "#!/bin/bash\npython t.py --a 1 --a 2 --b 3\n", "t.py": _OF_ONE},
            ["error"],
            id="its own",
        ),
        pytest.param(
            "MLM001",
            {"job.sh": _ON_NODES.replace("NODES", "${1:-1}")},
            [],
            id="nodes that the caller gives",
        ),
        pytest.param(
            "MLM001", {"job.sh": _ON_NODES.replace("NODES", "1")}, ["error"], id="one node"
        ),
        pytest.param(
            "MLM032",
            {
                "pretrain_gpt.py": "",
                "megatron/arguments.py": _PARSER,
                "job.sh": f"python pretrain_gpt.py{_RUN}{_MOCK}\n",
            },
            ["note"],
            id="sources that an older parser doesn't compare",
        ),
        pytest.param(
            "MLM032",
            {"job.sh": f"python pretrain_gpt.py{_RUN}{_MOCK}\n"},
            ["error"],
            id="two sources",
        ),
        pytest.param(
            "PREC003",
            {
                "ds.json": _OF_FP16,
                "README.md": "deepspeed==0.17.1 fails\n",
                "requirements.txt": "deepspeed==0.14.2\n",
            },
            ["note"],
            id="what is installed before prose",
        ),
        pytest.param("LNCH041", {"job.sh": _IN_BLOCK}, [], id="a command within a block below"),
        pytest.param("SUB002", {"job.sh": _STEP_OF_4}, [], id="a step on some of the job's nodes"),
        pytest.param(
            "LNCH020",
            {"job.sh": "#!/bin/bash\nsrun -n1 --ntasks-per-node=4 torchrun t.py\n"},
            [],
            id="one task, however many a node",
        ),
        pytest.param(
            "LNCH020",
            {"job.sh": "#!/bin/bash\nsrun --ntasks-per-node=4 torchrun t.py\n"},
            ["error"],
            id="four tasks a node",
        ),
        pytest.param(
            "LNCH042",
            {
                "run.sh": "#!/bin/bash\npython t.py --a 1 --a 2 --b 3\n",
                "t.py": "from lib import two\ntwo.parse_args()\n",
                "lib/__init__.py": "from .one import *\n",
                "lib/one.py": _OF_ONE,
                "lib/two.py": _OF_ONE.replace("'--a'", "'--b'"),
            },
            [],
            id="a parser in a module that is imported from its package",
        ),
        pytest.param(
            "PARSE002", {"ds.json": _TRAILING, "t.py": ""}, ["note"], id="HJSON that nothing names"
        ),
        pytest.param(
            "PARSE002",
            {"ds.json": _TRAILING, "t.py": 'Trainer(deepspeed="ds.json")\n'},
            ["error"],
            id="HJSON for the Trainer",
        ),
        pytest.param(
            "LNCH041",
            {"job.sh": "#!/bin/bash\r\ntorchrun t.py \\\r\n  --a 1 \\\r\n  --b 2\r\n"},
            ["error"],
            id="lines that end as on DOS, once",
        ),
        pytest.param(
            "MLM049",
            {
                "job.sh": f'#!/bin/bash\r\nA="{_RUN} \\\r\n --bf16 \\\r\n"\r\npython '
                "pretrain_gpt.py $A\r\n"
            },
            [],
            id="what such lines make of options",
        ),
        pytest.param(
            "MLM047",
            {"job.sh": f"python pretrain_gpt.py{_RUN}\n"},
            [],
            id="the project's own parser",
        ),
        pytest.param(
            "HF023", {"examples/run.sh": _EVALUATES}, ["warning"], id="an installed transformers"
        ),
        pytest.param(
            "HF023",
            {"examples/run.sh": _EVALUATES, "src/transformers/training_args.py": ""},
            ["note"],
            id="an example of the transformers around it",
        ),
        pytest.param(
            "BATCH012", {"ds.json": _MICRO, "job.sh": _MEGATRON}, ["error"], id="a training"
        ),
        pytest.param(
            "BATCH012",
            {"ds.json": _MICRO, "job.sh": _MEGATRON.replace("--train-iters 9", "")},
            [],
            id="a program without steps, such as a converter",
        ),
        pytest.param(
            "HF025",
            {"a.yaml": _RATE, "train.py": "HfArgumentParser(A), 'a.yaml'"},
            ["warning"],
            id="a plain parser",
        ),
        pytest.param(
            "HF025",
            {"a.yaml": _RATE, "train.py": "HfArgumentParser(A)"},
            ["note"],
            id="named by nothing",
        ),
        pytest.param(
            "HF025",
            {"a.yaml": _RATE, "train.py": "TrlParser(A)"},
            [],
            id="a parser that makes it a number",
        ),
        pytest.param("HF025", {"a.yaml": _RATE}, [], id="a reader that isn't known"),
        pytest.param(
            "HF034",
            {"train.yaml": f"{_ARGUMENTS}max_steps: 10\nwarmup_steps: 10\n"},
            ["note"],
            id="a trial",
        ),
        pytest.param(
            "HF034",
            {"train.yaml": f"{_ARGUMENTS}max_steps: 900\nwarmup_steps: 900\n"},
            ["warning"],
            id="all",
        ),
        pytest.param(
            "LNCH002",
            {"hostfile": "x.x.x.x slots=8\nx.x.x.x slots=8\n"},
            ["note"],
            id="an address to come",
        ),
        pytest.param(
            "LNCH002",
            {"hostfile": "main_node_ip slots=8\nworker slots=N\n"},
            ["note"],
            id="slots to come",
        ),
        pytest.param(
            "LNCH002",
            {"hostfile": "ip-10-0-0-1 slots=8\nip-10-0-0-1 slots=8\n"},
            ["error"],
            id="a name",
        ),
        pytest.param(
            "LNCH002", {"hostfile": "gpu1\ngpu2\n"}, ["note"], id="another launcher's hosts"
        ),
        pytest.param(
            "LNCH002",
            {
                "hostfile": "gpu1\ngpu2\n",
                "run.sh": "#!/bin/bash\ndeepspeed --hostfile hostfile train.py\n",
            },
            ["error"],
            id="hosts that DeepSpeed reads",
        ),
        pytest.param(
            "SLM020", {"slurm/job.sbatch": f"{_LOGS}srun hostname\n"}, ["warning"], id="no folder"
        ),
        pytest.param(
            "SLM020",
            {"slurm/job.sbatch": f"{_LOGS}srun hostname\n", "logs/.gitkeep": ""},
            [],
            id="beside the scripts",
        ),
        pytest.param(
            "SLM020",
            {"slurm/job.sbatch": f"{_LOGS}srun hostname\n", ".gitignore": "logs/\n"},
            ["note"],
            id="a folder that is left out of the repository",
        ),
        pytest.param(
            "LNCH044",
            {
                "job.sh": "#!/bin/bash\nif a; then C=(torchrun --nnodes=2); else C=(python); "
                'fi\n"${C[@]}" t.py\n'
            },
            [],
            id="a launcher kept for a program that comes later",
        ),
        pytest.param(
            "HF028",
            {"a.yaml": f"{_ARGUMENTS}per_device_eval_batch_size: 0\n"},
            ["error"],
            id="no program",
        ),
        pytest.param(
            "HF028",
            {
                "a.yaml": f"{_ARGUMENTS}per_device_eval_batch_size: 0\n",
                "train.py": "yaml.safe_load(f)",
            },
            [],
            id="a program that reads its YAML itself",
        ),
        pytest.param(
            "HF023",
            {
                "run.sh": _EVALUATES.replace("run.py", "lib/run.py"),
                "lib/run.py": "",
                "lib/p.toml": "",
            },
            ["warning"],
            id="no release",
        ),
        pytest.param(
            "HF023",
            {
                "run.sh": _EVALUATES.replace("run.py", "lib/run.py"),
                "lib/run.py": "",
                "lib/requirements.txt": "transformers==4.40.0",
            },
            ["note"],
            id="the release beside the program that is started",
        ),
        pytest.param(
            "PARSE016",
            {"ds_config_a-b.json": "", "job.sh": "#!/bin/bash\ncat t > ds_config_${NAME}.json\n"},
            [],
            id="a file of a name that a script writes",
        ),
        pytest.param(
            "PARSE016",
            {
                "ds_config_a.json": "",
                "job.sh": "#!/bin/bash\ncat ds_config_a.json > ds_config_${NAME}.json\n",
            },
            ["error"],
            id="a file that the script reads by its name",
        ),
        pytest.param(
            "NCCL005", {".deepspeed_env": 'NCCL_DEBUG=""\n'}, [], id="no messages on purpose"
        ),
        pytest.param("NCCL005", {".deepspeed_env": "NCCL_DEBUG=1\n"}, ["warning"], id="no level"),
        pytest.param(
            "FILE003",
            {"train.yaml": f"{_ARGUMENTS}save_steps: 5\n"},
            ["note"],
            id="the same value twice",
        ),
        pytest.param(
            "FILE003",
            {"train.yaml": f"save_steps:\n{_ARGUMENTS}"},
            ["note"],
            id="no value at first",
        ),
        pytest.param(
            "FILE003",
            {"train.yaml": f"{_ARGUMENTS}report_to: [a]\nreport_to: [a]\n"},
            ["note"],
            id="the same list twice",
        ),
        pytest.param(
            "FILE003",
            {"train.yaml": f"{_ARGUMENTS}report_to: [a]\nreport_to: [b]\n"},
            ["warning"],
            id="another list",
        ),
        pytest.param(
            "FILE003",
            {"train.yaml": f"{_ARGUMENTS}save_steps: 6\n"},
            ["warning"],
            id="another value",
        ),
        pytest.param(
            "FILE003",
            {"train.yaml": f"{_ARGUMENTS}save_steps: 5.0\n"},
            ["warning"],
            id="another type",
        ),
        pytest.param(
            "OPT015",
            {"ds.json": '{"steps_per_print": 1e5, "bf16": {"enabled": true}}'},
            ["note"],
            id="1e5",
        ),
        pytest.param(
            "OPT015",
            {"ds.json": '{"steps_per_print": 2.5, "bf16": {"enabled": true}}'},
            ["warning"],
            id="2.5",
        ),
    ],
)
def test_a_config_is_judged_by_what_reads_it(
    rule: str, files: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    """What the program around a config sets, and what makes no difference to its reader, is at most
    a note.
    """
    assert severities(tmp_path, files, rule) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<account>",
        "{ account }",
        "< your name >",
        "{{nodes}}",
        "{nodes}",
        "@NODES@",
        "__NODES__",
        "your_qos",
    ],
)
def test_placeholders_are_seen(text: str) -> None:
    """Forms in which people and templates leave a place open are placeholders."""
    assert is_placeholder(text)


@pytest.mark.parametrize(
    "text", ["gpu:a100:8", "%x-%j.out", "n[1-4]", "$HOME/logs", "${NODES}", "user@site.org", "a<b"]
)
def test_values_are_no_placeholders(text: str) -> None:
    """Values that Slurm and a shell read are none."""
    assert not is_placeholder(text)


def test_a_template_may_lack_what_is_filled_in(tmp_path: Path) -> None:
    """A config that nothing names draws a note for its missing batch where there are programs,
    which may add it.
    """
    for folder in ("config_templates", "configs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").touch()
        (tmp_path / folder / "zero0.json").write_text(
            '{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}'
        )
        found = [f for f in dsgen.validate(tmp_path / folder) if f.rule == "BATCH004"]
        assert [f.severity.value for f in found] == ["note"]
    (found,) = [
        f for f in dsgen.validate(tmp_path / "configs" / "zero0.json") if f.rule == "BATCH004"
    ]
    assert found.severity.value == "error"


def test_the_first_address_may_come_from_the_launch_line(tmp_path: Path) -> None:
    """An accelerate config for several machines, which no launch line names, draws a note for its
    missing address.
    """
    (tmp_path / "multi_node.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_machines: "
        "32\nnum_processes: 256\n"
        "mixed_precision: bf16\nuse_cpu: false\n"
    )
    (found,) = [f for f in dsgen.validate(tmp_path) if f.rule == "ACC015"]
    assert found.severity.value == "note"


@pytest.mark.parametrize("name", ["configs/zero2.yaml", "zero2.conf"])
def test_a_config_of_any_name_is_a_path(tmp_path: Path, name: str) -> None:
    """accelerate reads JSON whatever the name of deepspeed_config_file is."""
    (tmp_path / "accelerate.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: "
        "1\nnum_processes: 8\n"
        f"deepspeed_config:\n  deepspeed_config_file: {name}\n"
    )
    assert [f for f in dsgen.validate(tmp_path) if f.rule == "ACC018"] == []


def test_a_list_of_options_is_no_script(tmp_path: Path) -> None:
    """Options, one a line, as arguments.txt has them, are no commands that a missing backslash cuts
    off.
    """
    (tmp_path / "arguments.txt").write_text("# of train.py\n--deepspeed\n-5\n--bf16\n")
    assert [f for f in dsgen.validate(tmp_path / "arguments.txt") if f.rule == "LNCH041"] == []


def test_an_escaped_quote_closes_no_directive(tmp_path: Path) -> None:
    """sbatch reads an escaped double quote within double quotes as a character, as Slurm 22.05.8
    does.
    """
    (tmp_path / "job.sbatch").write_text(
        '#!/bin/bash\n#SBATCH --comment="x\\"a b"\n#SBATCH --nodes=1\nsrun true\n'
    )
    assert [f for f in dsgen.validate(tmp_path) if f.rule in ("SLM050", "SLM027")] == []


@pytest.mark.parametrize(
    ("option", "expected"), [("--learning_rat", []), ("--learnin_rate", ["warning"])]
)
def test_the_beginning_of_a_name_is_the_name(
    option: str, expected: list[str], tmp_path: Path
) -> None:
    """argparse takes the beginning of an option's name for the option, and refuses another slip."""
    line = f"torchrun --nproc_per_node 8 train.py --output_dir out --do_train {option} 1e-4\n"
    assert severities(tmp_path, {"run.sh": line}, "HF024") == expected


def test_no_name_is_taken_from_outside(tmp_path: Path) -> None:
    """A slip is looked for in the folder that was named, and not in those that a path leads
    out to.
    """
    (tmp_path / "named").mkdir()
    for folder, expected in (("outside", 0), ("named/inside", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "zero_config.json").write_text("{}")
        (tmp_path / folder / "train.py").write_text("")
        path = f"../{folder}" if folder == "outside" else "inside"
        line = f"deepspeed {path}/trian.py --deepspeed_config {path}/zero_confg.json\n"
        (tmp_path / "named" / "run.sh").write_text(f"#!/bin/bash\n{line}")
        found = [
            finding
            for finding in dsgen.validate(tmp_path / "named")
            if "did you mean" in (finding.hint or "")
        ]
        assert len(found) == expected


def test_files_that_changed_are_read_again(tmp_path: Path) -> None:
    """A second check in one process sees what programs, pins and folders have become since the
    first.
    """
    (tmp_path / "ds.json").write_text(_AUTO)
    (tmp_path / "job.sh").write_text(_NAMED)

    def rules() -> set[str]:
        return {finding.rule for finding in dsgen.validate(tmp_path)}

    assert "PARSE007" in rules()
    (tmp_path / "train.py").write_text(_ADDS.format("="))
    assert "PARSE007" not in rules()
    (tmp_path / "train.py").write_text(_ADDS.format("=="))
    assert "PARSE007" in rules()
