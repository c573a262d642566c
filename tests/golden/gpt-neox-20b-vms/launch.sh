#!/bin/bash
# Written by dsgen 0.1.0: dsgen generate
# Job gpt-neox-20b: deepspeed trains gpt-neox-20b on 4 × gcp/a3-highgpu-8g.
# 32 GPUs = 32 data × 1 tensor × 1 pipeline × 1 context; ZeRO 2, recompute full, offload none.
# 1024 sequences a step = 8 micro batch × 4 accumulated × 32 data. plan.json has the estimates and reasons.
# recompute full: the script must checkpoint every layer itself.
# training.duration is 4769 optimizer steps: the script must stop there.
#
# Run on any machine that reaches every host by ssh without a password, in the folder that holds the training
# script; that folder and this one must have the same path on every host. Usage: launch.sh [HOSTFILE]

# What is in single quotes is data.
# shellcheck disable=SC1003,SC2016,SC2088
set -euo pipefail

NODES=4
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
  OMP_NUM_THREADS=26
)

SCRIPT=train.py
ARGUMENTS=(
  # batch, precision, optimizer and ZeRO are in the JSON
  --deepspeed
  --deepspeed_config "$CONFIG_DIR"/ds_config.json
)

HOSTFILE="${1:-$CONFIG_DIR/hostfile}"
if [[ ! -r "$HOSTFILE" ]]; then
  echo "cannot read $HOSTFILE: write one line \"HOST slots=$PROCESSES_PER_NODE\" for each of the $NODES nodes" >&2
  exit 1
fi
HOSTS=()
while read -r host slots _ || [[ -n "$host" ]]; do
  [[ -z "$host" || "$host" == \#* ]] && continue
  if [[ "$slots" != "slots=$PROCESSES_PER_NODE" ]]; then
    echo "$HOSTFILE: $host has '$slots', but the plan needs slots=$PROCESSES_PER_NODE" >&2
    exit 1
  fi
  if [[ " ${HOSTS[*]-} " == *" $host "* ]]; then
    echo "$HOSTFILE: $host is named twice" >&2
    exit 1
  fi
  HOSTS+=("$host")
done <"$HOSTFILE"
if [[ "${#HOSTS[@]}" -ne "$NODES" ]]; then
  echo "$HOSTFILE names ${#HOSTS[@]} hosts, but the plan needs $NODES" >&2
  exit 1
fi

# Each word in single quotes, which every login shell reads alike.
quoted() {
  local word quote="'\\''"
  for word in "$@"; do
    printf "'%s' " "${word//\'/$quote}"
  done
}

torchrun_on() { # the words of one host's command; $1 is its node rank
  COMMAND=(
    env "${ENVIRONMENT[@]}" torchrun --nnodes="$NODES" --nproc-per-node="$PROCESSES_PER_NODE" --node-rank="$1"
    --master-addr="${HOSTS[0]}" --master-port=29500 "$SCRIPT" "${ARGUMENTS[@]}"
  )
}

SESSIONS=()
stop_all() {
  kill "${SESSIONS[@]}" 2>/dev/null || true
}
trap stop_all EXIT
for rank in "${!HOSTS[@]}"; do
  torchrun_on "$rank"
  # -tt: a closed connection ends the processes on that host. No input, so the terminal here stays as it is.
  ssh -tt -p 22 -o BatchMode=yes -- "${HOSTS[rank]}" \
    "cd -- $(quoted "$PWD") && exec $(quoted "${COMMAND[@]}")" </dev/null &
  SESSIONS+=("$!")
done
for _ in "${SESSIONS[@]}"; do
  wait -n # the first host that fails ends the others, which would hang without it
done
