#!/bin/bash
# Written by dsgen 0.3.0: dsgen generate
# Job llama-3-8b-lora: huggingface trains llama-3.1-8b on 1 × aws/g5.48xlarge.
# 8 GPUs = 8 data × 1 tensor × 1 pipeline × 1 context; ZeRO 1, recompute full, offload none.
# 64 sequences a step = 1 micro batch × 8 accumulated × 8 data. plan.json has the estimates and reasons.
# Written for transformers 5.23.0, accelerate 1.15.0, torch >=2.6, flash-attn >=2.3.3, bitsandbytes >=0.46.1,
# DeepSpeed 0.19.8, peft 0.21.
# The job doesn't set gradient_clipping (1): these are dsgen's defaults.
# The plan counts on sequences of 4096 tokens and attn_implementation=flash_attention_2, which the script sets:
# TrainingArguments can't.
# LoRA: the script must wrap the model by peft's get_peft_model with LoraConfig(r=16, lora_alpha=32,
# target_modules="all-linear", lora_dropout=0, bias='none', task_type='CAUSAL_LM'): 41,943,040 parameters are
# trained.
# With gradient checkpointing the script must call model.enable_input_require_grads() before training.
# QLoRA: the script must load the model with BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type='nf4',
# bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16, bnb_4bit_quant_storage=torch.bfloat16);
# ZeRO-3 can shard no other storage type.
# To resume, the script must call trainer.train(resume_from_checkpoint=PATH), with the option of that name,
# which the launch file sets to the last whole checkpoint, or with what
# transformers.trainer_utils.get_last_checkpoint finds in output_dir.
#
# Run in the folder that holds the training script.

# Text in single quotes is not expanded on purpose.
# shellcheck disable=SC1003,SC2016,SC2088
set -euo pipefail

NODES=1
PROCESSES_PER_NODE=8

CONFIG_DIR="${DSGEN_CONFIG_DIR:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)}"
CONFIG_FILES=( ds_config.json )
for file in "${CONFIG_FILES[@]}"; do
  if [[ ! -r "$CONFIG_DIR/$file" ]]; then
    echo "cannot read $CONFIG_DIR/$file: set DSGEN_CONFIG_DIR to the folder of launch.sh" >&2
    exit 1
  fi
done

# Passed to every process on its command line: ssh forwards no environment.
ENVIRONMENT=(
  # A process's share of the node's cores; torchrun would set OMP_NUM_THREADS to 1.
  OMP_NUM_THREADS=24
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
)

CHECKPOINTS=out
# Whether a checkpoint is whole, by the file that is written last: it has its end.
is_whole() {
  [ ! -e "${1%/*}/checkpoint-is-incomplete.txt" ] && tail -c 2 "$1" 2>/dev/null | grep -q "}"
}

# The last step whose checkpoint is whole; 0 without one.
saved_step() {
  last=0
  for file in "$CHECKPOINTS"/checkpoint-*/trainer_state.json; do
    step="${file%/*}" && step="${step##*/checkpoint-}"
    if [ "$step" -gt "$last" ] 2>/dev/null && is_whole "$file"; then last="$step"; fi
  done
  echo "$last"
}

# How to go on where the checkpoint of a step can't be loaded: from the newest before it that has every file that the
# others have, at nine tenths of their size or more (of text, any).
say_how_to_go_on() {
  for folder in "$CHECKPOINTS"/checkpoint-*; do
    case "${folder##*/checkpoint-}" in
      "" | *[!0-9]*) ;;
      *) find "$folder" -type f -printf "${folder##*/} %s %P\n" 2>/dev/null ;;
    esac
  done | awk -v newest="$1" -v prefix=checkpoint- '
    {
      step = substr($1, length(prefix) + 1) + 0
      size = $2
      sub(/^[^ ]+ [^ ]+ /, "")
      gsub(/global_step[0-9]+/, "global_step")
      sizes[step, $0] = size + 0
      has[step, $0] = 1
      if (size + 0 > most[$0]) most[$0] = size + 0
      seen[$0]++
      steps[step] = 1
    }
    function lacks(step, name, least) {
      for (name in seen) {
        least = name ~ /[.](json|txt|yaml|md)$/ ? 1 : 0.9 * most[name]
        if (seen[name] > 1 && most[name] > 0 && (!has[step, name] || sizes[step, name] < least)) return name
      }
      return ""
    }
    END {
      best = 0
      for (step in steps) if (step + 0 < newest + 0 && step + 0 > best && lacks(step) == "") best = step + 0
      print best, (newest in steps) ? lacks(newest) : ""
    }' | {
    read -r step lacking || true
    folder="" newest=""
    for each in "$CHECKPOINTS"/checkpoint-*; do
      number="${each##*/checkpoint-}"
      if [ "$number" -eq "${step:-0}" ] 2>/dev/null; then folder="${each##*/}"; fi
      if [ "$number" -eq "$1" ] 2>/dev/null; then newest="${each##*/}"; fi
    done
    if [ -n "$folder" ] && [ -n "$newest" ]; then
      if [ -n "$lacking" ]; then
        echo "$CHECKPOINTS/$newest is not whole: $lacking is missing, or smaller than in the others"
      else
        echo "if the log says that $CHECKPOINTS/$newest can't be loaded:"
      fi
      echo "go on from step $step, the newest before it that is whole, and start again:"
      echo "  mv '$CHECKPOINTS/$newest' '$CHECKPOINTS/damaged-$newest'"
    fi
  } >&2
}

# A run is finished when its last step is saved, and not before, whatever its status.
is_finished() {
  [ "$LAST_STEP" -gt 0 ] && [ "$(saved_step)" -ge "$LAST_STEP" ]
}

# Ends with the run's status, which becomes 0 when the last step is saved, and 143 while it isn't; a node without rank 0
# may see the save some seconds later.
end_run() {
  status="$1" patience="${2:-0}"
  while [ "$status" -eq 0 ] && [ "$patience" -gt 0 ] && ! is_finished && [ "$LAST_STEP" -gt 0 ]; do
    sleep 1
    patience="$((patience - 1))"
  done
  if is_finished; then
    echo "the run is finished: step $(saved_step) is saved"
    exit 0
  fi
  if [ "$status" -eq 0 ] && [ "$LAST_STEP" -gt 0 ]; then
    echo "step $LAST_STEP is not saved: start the job again to resume from step $(saved_step)" >&2
    exit 143
  fi
  if [ "$status" -ne 0 ] && [ "$(saved_step)" -eq "$SAVED" ]; then
    say_how_to_go_on "$SAVED" || true
  fi
  exit "$status"
}

# ZeRO's states are one file a data-parallel rank (data × context), and DeepSpeed refuses them on another number.
check_data_ranks() { # with the number of this plan, and the folder of the checkpoint
  local ranks="$1" saved_in="$2" tag="" states
  UNIVERSAL=""
  if [[ -r "$saved_in/latest" ]]; then
    read -r tag <"$saved_in/latest" || true # it ends without a newline
  fi
  states=("$saved_in/$tag"/*zero_pp_rank_*_mp_rank_00_optim_states.pt)
  if [[ -z "$tag" || ! -e "${states[0]:-}" || "${#states[@]}" -eq "$ranks" ]]; then
    return 0
  fi
  if [[ -r "$saved_in/latest_universal" ]]; then
    read -r UNIVERSAL <"$saved_in/latest_universal" || true
  fi
  if [[ "$UNIVERSAL" != "${tag}_universal" ]]; then
    echo "$saved_in/$tag was saved by ${#states[@]} data-parallel ranks, but this plan has $ranks: convert it and start again:" >&2
    printf '  python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state --input_folder %q --output_folder %q\n' \
      "$saved_in/$tag" "$saved_in/${tag}_universal" >&2
    exit 1
  fi
  echo "loading $UNIVERSAL, saved by ${#states[@]} data-parallel ranks, on $ranks" >&2
  mkdir -p -- "$CONFIG_DIR/universal"
  sed '1s/{/{ "checkpoint": {"load_universal": true},/' "$CONFIG_DIR/ds_config.json" \
    >"$CONFIG_DIR/universal/ds_config.json"
  CONFIG_DIR="$CONFIG_DIR/universal"
}
check_data_ranks 8 "$CHECKPOINTS/checkpoint-$(saved_step)"

SCRIPT=run_sft.py
ARGUMENTS=(
  # ZeRO and the optimizer; the arguments below repeat its numbers
  --deepspeed "$CONFIG_DIR"/ds_config.json
  # batch per device and pass, and passes per step
  --per_device_train_batch_size 1
  --gradient_accumulation_steps 8
  # precision and recomputation
  --bf16 true
  --gradient_checkpointing true
  # optimizer: the same as in the JSON, or the Trainer refuses to start
  --optim adamw_bnb_8bit
  --learning_rate 0.0002
  --weight_decay 0
  --adam_beta1 0.9
  --adam_beta2 0.999
  --adam_epsilon 1e-08
  --max_grad_norm 1
  # duration, warm-up, and a line of the log a minute
  --max_steps 625
  --warmup_steps 19
  --logging_steps 1
  # without it the example scripts of transformers train nothing
  --do_train true
  # data and tokenizer, by the options of the example scripts of transformers
  --train_file /data/sft.json
  # checkpoints
  --output_dir out
  --save_strategy steps
  --save_steps 98
  --save_total_limit 4
  # from the job's launch.arguments, and --model_name_or_path from its model where these name none
  --model_name_or_path meta-llama/Llama-3.1-8B
)

LAST_STEP=0 # of the arguments; 0: not known
if [[ " ${ARGUMENTS[*]} " =~ .*\ --max_steps[\ =]([0-9]+)\  ]]; then LAST_STEP="${BASH_REMATCH[1]}"; fi
SAVED="$(saved_step)"
if is_finished; then
  echo "the run is finished: step $SAVED is saved"
  exit 0
fi
if [ "$SAVED" -gt 0 ]; then # the script is told to resume from the last whole checkpoint
  ARGUMENTS+=(--resume_from_checkpoint out/checkpoint-"$SAVED")
fi

# One node needs no rendezvous with others; --standalone takes a free port.
TRAINING=(
  env "${ENVIRONMENT[@]}" torchrun --standalone --nnodes="$NODES" --nproc-per-node="$PROCESSES_PER_NODE"
  "$SCRIPT" "${ARGUMENTS[@]}"
)
trap 'exit 143' HUP INT TERM
"${TRAINING[@]}" &
TORCHRUN=$!
trap 'SIGNALLED=1; kill -TERM "$TORCHRUN" 2>/dev/null' HUP INT TERM
while SIGNALLED=0; STATUS=0; wait "$TORCHRUN" || STATUS=$?; ((SIGNALLED)); do
  : # a signal ends wait before torchrun ends
done
end_run "$STATUS"
