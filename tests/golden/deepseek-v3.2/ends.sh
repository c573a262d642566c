# shellcheck shell=bash disable=SC2034,SC2317,SC2329
# Written by dsgen 0.3.0: dsgen generate
#
# How a start of this run begins, ends and goes on. launch.sbatch reads this file, sets CHECKPOINTS and calls the functions
# in the order in which they stand here.

HOLDERS="$CHECKPOINTS/dsgen-jobs"
LONGEST_WAIT=600 # seconds, for another job of this run that ends

# The file is the old or the new one, also when the disk is full.
write_whole() {
  printf '%s\n' "$2" >"$1.new" && mv -- "$1.new" "$1"
}

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

# The Trainer resumes from the checkpoint with the highest number, whole or not: those that are not are renamed.
repair_checkpoints() {
  local path
  for path in "$CHECKPOINTS"/checkpoint-*; do
    if [[ "$path" =~ /checkpoint-[0-9]+$ ]] && ! is_whole "$path/trainer_state.json"; then
      echo "${path##*/} is not whole: it is renamed to incomplete-${path##*/}-..." >&2
      mv -- "$path" "$CHECKPOINTS/incomplete-${path##*/}-$SLURM_JOB_ID-$(date +%s)"
    fi
  done
}

# State of a job that may still write; nothing where it has ended or waits. It fails where Slurm does not answer.
state_of() {
  local number="${1%%@*}" cluster="" answer
  [[ "$number" =~ ^[0-9]+$ ]] || return 0
  if [[ "$1" == *@* && "${1#*@}" != "${SLURM_CLUSTER_NAME:-}" ]]; then cluster="${1#*@}"; fi
  # Asked for this job too, so that a forgotten number is no error, and an answer without this job is none.
  answer="$(squeue ${cluster:+"--clusters=$cluster"} --noheader --jobs="$number,$SLURM_JOB_ID" \
    --states=RUNNING,SUSPENDED,STOPPED,COMPLETING --format='%A %T')" || return 1
  [[ -n "$cluster" || $'\n'"$answer" == *$'\n'"$SLURM_JOB_ID "* ]] || return 1
  sed -n "s/^$number //p" <<<"$answer"
}

# Two jobs at once would write over each other's checkpoints. The last of the numbered links in dsgen-jobs names the job
# that has the run, its cluster and its start. Of those who would take the run one alone can make the next link.
take_run() {
  local this="$SLURM_JOB_ID${SLURM_CLUSTER_NAME:+@$SLURM_CLUSTER_NAME}" until="$((SECONDS + LONGEST_WAIT))"
  local start="$this start ${SLURM_RESTART_COUNT:-0}" next other state
  mkdir -p -- "$HOLDERS"
  while :; do
    next=1
    while [[ -L "$HOLDERS/$next" ]]; do next="$((next + 1))"; done
    other="$(readlink -- "$HOLDERS/$((next - 1))" || true)"
    [[ "$other" != "$start" ]] || break
    other="${other% start *}" state=""
    if [[ "$other" != "$this" ]]; then # an earlier start of this job has ended
      state="$(state_of "$other")" || state=unknown
    fi
    if [[ -z "$state" ]]; then
      if ln -sn -- "$start" "$HOLDERS/$next" 2>/dev/null; then break; fi
      if [[ ! -L "$HOLDERS/$next" ]]; then
        echo "cannot make a link in $HOLDERS: nothing keeps a second job from training this run beside this one" >&2
        break
      fi
    elif [[ "$state" != @(COMPLETING|unknown) ]]; then
      echo "job $other trains this run already: this one ends" >&2
      exit 1
    elif ((SECONDS >= until)); then
      echo "job $other may still write to $CHECKPOINTS ($state): this one ends" >&2
      echo "submit it again; if that job has ended for certain, remove $HOLDERS/$((next - 1)) first" >&2
      exit 1
    fi
    sleep 5
  done

  repair_checkpoints
  SAVED="$(saved_step)"
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

# A run that is longer than the time limit resumes by itself; this file counts its attempts.
ATTEMPTS_FILE="$CHECKPOINTS/dsgen-attempts.txt"
FAILED_ATTEMPTS_LIMIT=3 # attempts in a row without a newer checkpoint

# attempt, those in a row without a newer checkpoint, the step that this one starts from, and its job
note_attempt() {
  write_whole "$ATTEMPTS_FILE" "attempt=$1 failed=$2 from_step=$3 job=$SLURM_JOB_ID"
}

finish_run() {
  echo "the run is finished: step $1 is saved"
  write_whole "$ATTEMPTS_FILE" "finished at step $1 of $LAST_STEP" || true
  exit 0
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

give_up() {
  echo "$1 attempts in a row saved nothing newer than step $2: the run is stopped, see what they wrote" >&2
  say_how_to_go_on "$2" || true
  note_attempt "$ATTEMPT" 0 -1 || true
  exit 1
}

# Ends here where the run is finished, or too many attempts in a row saved nothing.
count_attempt() {
  local line="" from_step=-1
  ATTEMPT=0 FAILED_ATTEMPTS=0
  if [[ -r "$ATTEMPTS_FILE" ]]; then
    read -r line <"$ATTEMPTS_FILE" || true
  fi
  if [[ "$line" =~ ^attempt=([0-9]{1,9})\ failed=([0-9]{1,9})\ from_step=(-?[0-9]{1,12})(\ job=([0-9]+))?$ ]]; then
    ATTEMPT="${BASH_REMATCH[1]}" FAILED_ATTEMPTS="${BASH_REMATCH[2]}" from_step="${BASH_REMATCH[3]}"
  elif [[ "$line" == "finished at step "* && "$line" == *" of $LAST_STEP" ]] && ((LAST_STEP == 0 || SAVED < LAST_STEP)); then
    echo "the run is finished: $ATTEMPTS_FILE says so; remove it to train on from step $SAVED"
    exit 0
  fi
  if ((LAST_STEP > 0 && SAVED >= LAST_STEP)); then
    finish_run "$SAVED"
  fi
  if ((SAVED > from_step || ${SLURM_RESTART_COUNT:-0} == 0)); then # a job that somebody submits is a new beginning
    FAILED_ATTEMPTS=0
  else
    FAILED_ATTEMPTS="$((FAILED_ATTEMPTS + 1))"
  fi
  if ((FAILED_ATTEMPTS >= FAILED_ATTEMPTS_LIMIT)); then
    give_up "$FAILED_ATTEMPTS" "$SAVED"
  fi
  ATTEMPT="$((ATTEMPT + 1))"
  if ! note_attempt "$ATTEMPT" "$FAILED_ATTEMPTS" "$SAVED"; then
    echo "cannot write $ATTEMPTS_FILE: nothing could be saved either, so the run is stopped" >&2
    exit 1
  fi
  echo "attempt $ATTEMPT: from step $SAVED$( ((LAST_STEP)) && echo " of $LAST_STEP")"
}

STEP_PID="" NEAR_LIMIT=0 CANCELLED=0

# USR1 comes before the time limit: the script may save a checkpoint, then the job queues again. It starts with the same
# arguments, so these have to load what was saved.
on_time_limit() {
  trap '' USR1
  NEAR_LIMIT=1
  echo "time limit near: USR1 to the training processes" >&2
  kill -USR1 "$STEP_PID" || true # srun passes it on to every task
  for ((waited = 0; waited < 630; waited++)); do
    kill -0 "$STEP_PID" 2>/dev/null || break
    sleep 1
  done
  if kill -0 "$STEP_PID" 2>/dev/null; then
    CANCELLED=1
    scontrol requeue "$SLURM_JOB_ID"
  fi
}

# From scancel, a preemption, or at the time limit itself; Slurm kills this shell a little later.
on_term() {
  CANCELLED=1
}

# Ends as the step ends, or queues the job again.
end_with_step() {
  local now job status=0
  wait "$STEP_PID" || true
  while kill -0 "$STEP_PID" 2>/dev/null; do # a trapped signal ends wait before the step ends
    wait "$STEP_PID" || true
  done
  wait "$STEP_PID" || status=$? # of the step, and not of the wait that a signal ended

  now="$(saved_step)"
  if ((LAST_STEP > 0 && now >= LAST_STEP)); then
    finish_run "$now"
  fi
  # The step may end before Slurm's TERM is here.
  job="$(scontrol show job "$SLURM_JOB_ID" || true)"
  if ((CANCELLED)) || [[ -n "$job" && "$job" != *JobState=RUNNING* ]]; then
    exit "$((status > 0 ? status : 143))"
  fi
  if ((status == 0 && NEAR_LIMIT == 0)); then
    if ((LAST_STEP == 0)); then
      finish_run "$now"
    fi
    echo "the script ended with status 0, but step $LAST_STEP is not saved: submit the job again to resume from step $now" >&2
    exit 1
  fi
  if ((now <= SAVED && FAILED_ATTEMPTS + 1 >= FAILED_ATTEMPTS_LIMIT)); then
    give_up "$((FAILED_ATTEMPTS + 1))" "$now"
  fi
  echo "attempt $ATTEMPT ended with status $status; step $now is saved" >&2
  if ! scontrol requeue "$SLURM_JOB_ID"; then
    echo "this job may not queue again: submit it once more, or set launch.slurm.continue to chain" >&2
    exit 1
  fi
  exit "$status"
}
