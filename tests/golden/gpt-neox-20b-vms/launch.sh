#!/bin/bash
# Written by dsgen 0.3.0: dsgen generate
# Job gpt-neox-20b: deepspeed trains gpt-neox-20b on 4 × gcp/a3-highgpu-8g.
# 32 GPUs = 32 data × 1 tensor × 1 pipeline × 1 context; ZeRO 3, recompute full, offload none.
# 1024 sequences a step = 16 micro batch × 2 accumulated × 32 data. plan.json has the estimates and reasons.
# Written for torch >=2.0.0, DeepSpeed 0.19.8.
# The job doesn't set learning_rate (0.0001), weight_decay (0.1), gradient_clipping (1): these are dsgen's
# defaults.
# recompute full: the script must checkpoint every layer itself.
# training.duration is 4769 optimizer steps: the script must stop there.
# ds_config.json has no scheduler: the learning rate is constant, unless the script passes lr_scheduler to
# deepspeed.initialize.
# Checkpoints are the script's to write and read: on every rank it must call before the first step
# engine.load_checkpoint(load_dir), which returns (None, {}) where there is none, and every 1153 steps
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

CHECKPOINTS=/mnt/checkpoints/gpt-neox-20b
# The last step whose checkpoint is whole, as the file says that is written after it; 0 without one.
saved_step() {
  tag=""
  if [ -r "$CHECKPOINTS/latest" ]; then
    read -r tag <"$CHECKPOINTS/latest" || true # it ends without a newline
  fi
  tag="${tag##*[!0-9]}"
  while [ "${tag#0}" != "$tag" ]; do tag="${tag#0}"; done
  echo "${tag:-0}"
}

# How to go on where the checkpoint of a step can't be loaded: from the newest before it that has every file that the
# others have, at nine tenths of their size or more (of text, any).
say_how_to_go_on() {
  for folder in "$CHECKPOINTS"/global_step*; do
    case "${folder##*/global_step}" in
      "" | *[!0-9]*) ;;
      *) find "$folder" -type f -printf "${folder##*/} %s %P\n" 2>/dev/null ;;
    esac
  done | awk -v newest="$1" -v prefix=global_step '
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
    for each in "$CHECKPOINTS"/global_step*; do
      number="${each##*/global_step}"
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
      echo "  mv '$CHECKPOINTS/$newest' '$CHECKPOINTS/damaged-$newest' && echo $folder >'$CHECKPOINTS/latest'"
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
  # Checkpoints with names of the script's own don't say their step.
  case "$(cat "$CHECKPOINTS/latest" 2>/dev/null)" in
    "" | global_step*) ;;
    *) LAST_STEP=0 ;;
  esac
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
check_data_ranks 32 "$CHECKPOINTS"

SCRIPT=train.py
ARGUMENTS=(
  # batch, precision, optimizer and ZeRO are in the JSON
  --deepspeed
  --deepspeed_config "$CONFIG_DIR"/ds_config.json
  # data and checkpoints: the script must take these; see above
  --data_path /mnt/data/pile
  --tokenizer /mnt/data/20B_tokenizer.json
  --save_dir /mnt/checkpoints/gpt-neox-20b
  --save_interval 1153
  --load_dir /mnt/checkpoints/gpt-neox-20b
)

LAST_STEP=4769 # 0: not known
SAVED="$(saved_step)"
if is_finished; then
  echo "the run is finished: step $SAVED is saved"
  exit 0
fi

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
# shellcheck disable=SC2317,SC2329 # the trap calls it
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
end_run "$STATUS"
    fi
  done
  sleep 1
done
end_run 0
