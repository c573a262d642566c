# Written by dsgen 0.3.0: dsgen generate
# Job gpt-2t: megatron-deepspeed trains megatron-deepspeed-2t on 128 × azure/standard_nd96amsr_a100_v4.
# 1024 GPUs = 1024 data × 1 tensor × 1 pipeline × 1 context; ZeRO 3, recompute full, offload optimizer.
# 8192 sequences a step = 4 micro batch × 2 accumulated × 1024 data. plan.json has the estimates and reasons.
# Written for Megatron-DeepSpeed 4efb479d, torch >=2.0.0, flash-attn >=2, DeepSpeed 0.19.8.
# The job doesn't set learning_rate (0.0001), weight_decay (0.1), gradient_clipping (1): these are dsgen's
# defaults.
# The plan counts a vocabulary of 50257: the tokenizer's, before Megatron pads it.
#
# Read by the command of job.yml in the shell of each process, which has set `CHECKPOINTS`.

# The last step whose checkpoint is whole, as the file says that is written after it; 0 without one.
saved_step() {
  tag=""
  if [ -r "$CHECKPOINTS/latest_checkpointed_iteration.txt" ]; then
    read -r tag <"$CHECKPOINTS/latest_checkpointed_iteration.txt" || true # it ends without a newline
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
      echo "  mv '$CHECKPOINTS/$newest' '$CHECKPOINTS/damaged-$newest' && echo $step >'$CHECKPOINTS/latest_checkpointed_iteration.txt'"
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

# The end of a process: rank 0 asks for all.
end_rank() {
  if [ "$RANK" -ne 0 ]; then exit "$1"; fi
  end_run "$1"
}

LAST_STEP=1000 # 0: not known
SAVED="$(saved_step)"
if is_finished; then
  echo "the run is finished: step $SAVED is saved"
  exit 0
fi
