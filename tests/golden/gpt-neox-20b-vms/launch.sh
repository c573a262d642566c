#!/bin/bash
# Written by dsgen 0.2.0: dsgen generate
# Job gpt-neox-20b: deepspeed trains gpt-neox-20b on 4 × gcp/a3-highgpu-8g.
# 32 GPUs = 32 data × 1 tensor × 1 pipeline × 1 context; ZeRO 3, recompute full, offload none.
# 1024 sequences a step = 8 micro batch × 4 accumulated × 32 data. plan.json has the estimates and reasons.
# Written for torch >=2.0.0, DeepSpeed 0.19.8.
# recompute full: the script must checkpoint every layer itself.
# training.duration is 4769 optimizer steps: the script must stop there.
# ds_config.json has no scheduler: the learning rate is constant, unless the script passes lr_scheduler to
# deepspeed.initialize.
# Checkpoints are the script's to write and read: on every rank it must call before the first step
# engine.load_checkpoint(load_dir), which returns (None, {}) where there is none, and every 1114 steps
# engine.save_checkpoint(save_dir, client_state={'step': step}). Nothing deletes old ones: the script may, but
# for the one in `latest`.
#
# Run on any machine that reaches every host by ssh without a password, in the folder that holds the training
# script; that folder and this one must have the same path on every host. Usage: launch.sh [HOSTFILE]

# Text in single quotes is not expanded on purpose.
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
  PYTHONUNBUFFERED=1 # what a rank prints is seen at once
  # A process's share of the node's cores; torchrun would set OMP_NUM_THREADS to 1.
  OMP_NUM_THREADS=26
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
)

SAVED_IN=/mnt/checkpoints/gpt-neox-20b

# ZeRO's states are one file a data-parallel rank (data × context), and DeepSpeed refuses them on another number.
DATA_RANKS=32
TAG="" UNIVERSAL=""
if [[ -r "$SAVED_IN/latest" ]]; then
  read -r TAG <"$SAVED_IN/latest" || true # it ends without a newline
fi
STATES=("$SAVED_IN/$TAG"/*zero_pp_rank_*_mp_rank_00_optim_states.pt)
if [[ -n "$TAG" && -e "${STATES[0]:-}" && "${#STATES[@]}" -ne "$DATA_RANKS" ]]; then
  if [[ -r "$SAVED_IN/latest_universal" ]]; then
    read -r UNIVERSAL <"$SAVED_IN/latest_universal" || true
  fi
  if [[ "$UNIVERSAL" != "${TAG}_universal" ]]; then
    echo "$SAVED_IN/$TAG was saved by ${#STATES[@]} data-parallel ranks, but this plan has $DATA_RANKS: convert it and start again:" >&2
    printf '  python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state --input_folder %q --output_folder %q\n' \
      "$SAVED_IN/$TAG" "$SAVED_IN/${TAG}_universal" >&2
    exit 1
  fi
  echo "loading $UNIVERSAL, saved by ${#STATES[@]} data-parallel ranks, on $DATA_RANKS" >&2
  mkdir -p -- "$CONFIG_DIR/universal"
  sed '1s/{/{ "checkpoint": {"load_universal": true},/' "$CONFIG_DIR/ds_config.json" \
    >"$CONFIG_DIR/universal/ds_config.json"
  CONFIG_DIR="$CONFIG_DIR/universal"
fi

SCRIPT=train.py
ARGUMENTS=(
  # batch, precision, optimizer and ZeRO are in the JSON
  --deepspeed
  --deepspeed_config "$CONFIG_DIR"/ds_config.json
  # data and checkpoints: the script must take these; see above
  --data_path /mnt/data/pile
  --tokenizer /mnt/data/20B_tokenizer.json
  --save_dir /mnt/checkpoints/gpt-neox-20b
  --save_interval 1114
  --load_dir /mnt/checkpoints/gpt-neox-20b
)

HOSTFILE="$CONFIG_DIR"/hostfile
HOSTFILE="${1:-$HOSTFILE}"
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

# The words of a host's command; the host puts its rank in.
COMMAND=(
  env "${ENVIRONMENT[@]}" torchrun --nnodes="$NODES" --nproc-per-node="$PROCESSES_PER_NODE"
  --node-rank=RANK_OF_THIS_HOST --master-addr="${HOSTS[0]}" --master-port=29500 "$SCRIPT" "${ARGUMENTS[@]}"
)

# The command on a host, as RUN WAIT HOST HOSTS FOLDER WORDS..., at the rank that is HOST's place in HOSTS. When it
# ends, when the connection does, or when nothing has come over it for WAIT seconds (0: however long), what is left of the
# run on that host is ended: the processes with its name in their environment. torchrun gives the processes of a node 30 s
# to end when one of them has failed, which it announces; they get 5 s here, and its status is what torchrun says it was.
ON_HOST='run=$1 wait=$2 host=$3 hosts=$4 folder=$5; shift 5
rank=0
for each in $hosts; do [ "$each" = "$host" ] && break; rank=$((rank + 1)); done
cd -- "$folder" || exit 1
for word in "$@"; do
  shift
  [ "$word" = --node-rank=RANK_OF_THIS_HOST ] && word=--node-rank=$rank
  set -- "$@" "$word"
done
environments() { grep -lsz -- "^DSGEN_RUN=$run[.]$rank\$" /proc/[0-9]*/environ; }
kill_all() { processes=$("$@" | cut -d/ -f3); [ -z "$processes" ] || kill -KILL $processes 2>/dev/null; }
workers() { grep -lsz "^LOCAL_RANK=" $(environments); }
listen() {
  closing=0
  grep --line-buffered -oE "closing signal SIG|failed \(exitcode: [0-9]+" | while read -r first _ status; do
    if [ "$first" = failed ]; then
      echo "$status" >&9
    elif [ "$closing" = 0 ]; then
      closing=1
      { sleep 5; kill_all workers; } &
    fi
  done
}
exec 9<> <(:)
DSGEN_RUN="$run.$rank" "$@" </dev/null 2> >(exec tee >(listen) >&2) &
command=$!
end_all() {
  kill -TERM "$command" 2>/dev/null
  for _ in 1 2 3 4 5 6; do kill -0 "$command" 2>/dev/null || break; sleep 0.5; done
  kill_all environments
}
watch() {
  trap "" HUP INT TERM PIPE
  while if [ "$wait" = 0 ]; then read -r _; else read -r -t "$wait" _; fi; do :; done
  end_all
}
watch <&0 >/dev/null 2>&1 &
watch=$!
trap "end_all; kill -KILL $watch 2>/dev/null" EXIT
trap "exit 143" HUP INT TERM
wait "$command"
status=$?
[ "$status" = 0 ] || { read -r -t 1 -u 9 own && status=$own; }
exit "$status"'
remote() { # the command line for host $2, from which nothing is heard for $1 seconds at most
  echo "bash -c $(quoted "$ON_HOST" dsgen-run "$$-$RANDOM-$(date +%s)" "$1")$2 $(quoted "${HOSTS[*]}" "$PWD" "${COMMAND[@]}")"
}

# A host that can't be reached fails after 10 s, a connection that is lost after 15 s.
SSH_OPTIONS=(-p 22 -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3)
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

SESSIONS=() # the process id of each host's ssh, by rank
LINKS=()    # the file descriptor that is its standard input: a line every second says that this script is alive
end_all() {
  local waited link
  trap '' HUP INT TERM
  for link in "${LINKS[@]}"; do
    exec {link}>&-
  done
  for ((waited = 0; waited < 10; waited++)); do # hosts need about 4 s where a process ignores TERM
    kill -0 "${SESSIONS[@]}" 2>/dev/null || break
    sleep 1
  done
  kill "${SESSIONS[@]}" 2>/dev/null || true
}
trap end_all EXIT
trap '' PIPE
for rank in "${!HOSTS[@]}"; do
  exec {LINK}> >(
    for link in "${LINKS[@]}"; do
      exec {link}>&-
    done
    exec ssh "${SSH_OPTIONS[@]}" -- "${HOSTS[rank]}" "$(remote 30 "$(quoted "${HOSTS[rank]}")")"
  )
  SESSIONS[rank]="$!"
  LINKS[rank]="$LINK"
done
while ((${#SESSIONS[@]})); do
  for rank in "${!SESSIONS[@]}"; do
    if kill -0 "${SESSIONS[rank]}" 2>/dev/null; then
      echo >&"${LINKS[rank]}" || true
      continue
    fi
    STATUS=0
    wait "${SESSIONS[rank]}" || STATUS="$?"
    unset "SESSIONS[rank]"
    if ((STATUS)); then # the others would hang without it
      echo "${HOSTS[rank]} ended with status $STATUS; ending the job on every host" >&2
      exit "$STATUS"
    fi
  done
  sleep 1
done
