"""The options of the programs that start training: names, short forms, and whether a value follows.

Each table says where it is from. An entry is its names, the first of which is the one we call it by, and a mark: `=` a
value follows, `?` a value may be attached, `==` two values follow, none: a flag. `X:` before a long name is its letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """An option that a program has."""

    name: str  #: as we call it, with its dashes
    values: int  #: how many words follow it
    optional: bool = False  #: a value may be attached (`--name=value`, `-Xvalue`), never the next word


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A program's options by every spelling."""

    source: str
    options: Mapping[str, Known]
    abbreviates: bool = True  #: whether an unambiguous beginning of a long name will do
    single_dash: bool = False  #: `-hostfile` is a long name, not letters

    def find(self, written: str) -> Known | None:
        """The option of a spelling, which may be abbreviated; None where there is none or more than one."""
        exact = self.options.get(written)
        if exact is not None or not self.abbreviates or not written.startswith("--") or len(written) < 3:
            return exact
        found = {known.name: known for name, known in self.options.items() if name.startswith(written)}
        return next(iter(found.values())) if len(found) == 1 else None


def _entry(text: str) -> tuple[list[str], Known]:
    body = text.rstrip("=?")
    mark = text[len(body) :]
    letter, colon, rest = body.partition(":")
    names = [
        f"-{n}" if len(n) == 1 else n if n.startswith("-") else f"--{n}" for n in (rest if colon else body).split("|")
    ]
    letters = [f"-{letter}"] if colon else []
    return [*names, *letters], Known(name=names[0], values=0 if mark == "?" else len(mark), optional=mark == "?")


def _table(
    source: str, entries: str, abbreviates: bool = True, single_dash: bool = False, dashes: bool = False
) -> Table:
    """A table from entries. With `dashes`, names with underscores are accepted with dashes as well."""
    options: dict[str, Known] = {}
    for text in entries.split():
        spellings, known = _entry(text)
        if dashes:
            spellings += [name.replace("_", "-") for name in spellings]
        options.update(dict.fromkeys(spellings, known))
    return Table(source=source, options=options, abbreviates=abbreviates, single_dash=single_dash)


#: What sbatch, salloc and srun share: srun(1) and sbatch(1), Slurm 22.05.8; later ones from srun(1) of 24.11.
_SLURM: Final = """
    A:account= acctg-freq= bb= bbf= b:begin= D:chdir= cluster-constraint= M:clusters|cluster= comment=
    C:constraint= container= container-id= contiguous S:core-spec= cores-per-socket= cpu-freq= cpus-per-gpu=
    c:cpus-per-task= deadline= delay-boot= d:dependency= m:distribution= e:error= x:exclude= exclusive?
    B:extra-node-info= gid= gpu-bind= gpu-freq= G:gpus= gpus-per-node= gpus-per-socket= gpus-per-task= gres=
    gres-flags= h:help hint= H:hold i:input= J:job-name= k:no-kill? L:licenses= mail-type= mail-user= mcs-label=
    mem= mem-bind= mem-per-cpu= mem-per-gpu= mincpus= network= nice? F:nodefile= w:nodelist= N:nodes= n:ntasks=
    ntasks-per-core= ntasks-per-gpu= ntasks-per-tres= ntasks-per-node|tasks-per-node= ntasks-per-socket=
    oom-kill-step? open-mode= o:output= O:overcommit s:oversubscribe p:partition= power= prefer= priority=
    profile= propagate? q:qos= Q:quiet reboot reservation= segment= consolidate-segments spread-segments
    container-type= context= extra= mem-update= resources= autocomplete= signal= sockets-per-node= spread-job
    stepmgr switches= test-only thread-spec= threads-per-core= t:time= time-min= tmp= tres-bind= tres-per-task=
    uid= usage use-min-nodes v:verbose V:version wckey=
"""
_SBATCH: Final = """
    resv-ports? external a:array= batch= export= export-file= get-user-env? ignore-pbs kill-on-invalid-dep=
    no-requeue parsable requeue W:wait wait-all-nodes= wrap=
"""
_SALLOC: Final = """
    bell get-user-env? I:immediate? K:kill-command? no-bell no-shell W:wait= wait-all-nodes= x11?
"""
_SRUN: Final = """
    accel-bind= bcast? bcast-exclude= compress? cpu-bind|cpu_bind= X:disable-status epilog= exact export=
    external external-launcher? wait-for-children async ignore-signals= parsable interactive whole
    het-group|pack-group= I:immediate? jobid= K:kill-on-bad-exit? l:label mpi= msg-timeout= multi-prog
    Z:no-allocate overlap E:preserve-env prolog= pty? quit-on-interrupt r:relative= resv-ports? send-libs?
    slurmd-debug= task-epilog= task-prolog= T:threads= tree-width|treewidth= u:unbuffered W:wait= x11?
"""
#: NVIDIA pyxis' README, v0.20: options that the plug-in adds to srun, sbatch and salloc.
_PYXIS: Final = """
    container-image= container-mounts= container-workdir= container-name= container-save= container-mount-home
    no-container-mount-home container-remap-root no-container-remap-root container-entrypoint
    no-container-entrypoint container-entrypoint-log container-writable container-readonly container-env=
"""
_SLURM_SOURCE: Final = "srun(1), sbatch(1) and salloc(1) of Slurm 22.05.8 to 24.11; pyxis v0.20"

#: torch.distributed.run.get_args_parser of torch 2.13.0.
_TORCHRUN: Final = """
    h:help nnodes= nproc-per-node|nproc_per_node= rdzv-backend|rdzv_backend= rdzv-endpoint|rdzv_endpoint=
    rdzv-id|rdzv_id= rdzv-conf|rdzv_conf= standalone max-restarts|max_restarts=
    monitor-interval|monitor_interval= start-method|start_method= event-log-handler|event_log_handler= role=
    m:module no-python|no_python run-path|run_path log-dir|log_dir= r:redirects= t:tee=
    local-ranks-filter|local_ranks_filter= duplicate-stdout-filters|duplicate_stdout_filters=
    duplicate-stderr-filters|duplicate_stderr_filters= node-rank|node_rank= master-addr|master_addr=
    master-port|master_port= local-addr|local_addr= logs-specs|logs_specs= numa-binding|numa_binding=
    signals-to-handle|signals_to_handle= shutdown-timeout|shutdown_timeout=
    virtual-local-rank|virtual_local_rank
"""

#: deepspeed/launcher/runner.py of DeepSpeed 0.19.8.
_DEEPSPEED: Final = """
    h:help H:hostfile= i:include= e:exclude= num_nodes= num_gpus|num_accelerators= master_port= master_addr=
    node_rank= launcher= launcher_args= module no_python no_local_rank no_ssh no_ssh_check force_multi save_pid
    enable_each_rank_log= autotuning= bind_cores_to_rank bind_core_list= ssh_port= venv_script= log_level=
    q:quiet elastic_training min_elastic_nodes= max_elastic_nodes=
"""

#: accelerate.commands.launch.launch_command_parser of accelerate 1.15.0.
_ACCELERATE: Final = """
    h:help q:quiet t:tee= m:module config_file= cpu multi_gpu tpu mixed_precision= num_processes= num_machines=
    num_cpu_threads_per_process= enable_cpu_affinity dynamo_backend= dynamo_mode= dynamo_use_fullgraph
    dynamo_use_dynamic dynamo_use_regional_compilation use_deepspeed use_fsdp use_parallelism_config
    use_megatron_lm gpu_ids= same_network machine_rank= main_process_ip= main_process_port= log_dir= role=
    rdzv_backend= rdzv_conf= max_restarts= monitor_interval= no_python tpu_cluster no_tpu_cluster tpu_use_sudo
    vm= env= main_training_function= downcast_bf16 deepspeed_config_file= zero_stage= offload_optimizer_device=
    offload_param_device= offload_optimizer_nvme_path= offload_param_nvme_path= gradient_accumulation_steps=
    gradient_clipping= zero3_init_flag= zero3_save_16bit_model= deepspeed_hostfile= deepspeed_exclusion_filter=
    deepspeed_inclusion_filter= deepspeed_multinode_launcher= deepspeed_moe_layer_cls_names= fsdp_version=
    fsdp_offload_params= fsdp_min_num_params= fsdp_sharding_strategy= fsdp_reshard_after_forward=
    fsdp_auto_wrap_policy= fsdp_transformer_layer_cls_to_wrap= fsdp_backward_prefetch= fsdp_state_dict_type=
    fsdp_forward_prefetch= fsdp_use_orig_params= fsdp_cpu_ram_efficient_loading= fsdp_sync_module_states=
    fsdp_activation_checkpointing= fsdp_activation_checkpointing_offload= megatron_lm_tp_degree=
    megatron_lm_use_custom_fsdp= megatron_lm_no_load_optim= megatron_lm_eod_mask_loss=
    megatron_lm_overlap_cpu_optimizer_d2h_h2d= megatron_lm_no_save_optim= megatron_lm_optimizer_cpu_offload=
    megatron_lm_use_precision_aware_optimizer= megatron_lm_decoder_last_pipeline_num_layers=
    megatron_lm_pp_degree= megatron_lm_num_micro_batches= megatron_lm_sequence_parallelism=
    megatron_lm_recompute_activations= megatron_lm_use_distributed_optimizer= megatron_lm_gradient_clipping=
    megatron_lm_recompute_granularity= megatron_lm_recompute_method= megatron_lm_recompute_num_layers=
    megatron_lm_attention_backend= megatron_lm_expert_model_parallel_size= megatron_lm_context_parallel_size=
    megatron_lm_attention_dropout= megatron_lm_hidden_dropout= megatron_lm_attention_softmax_in_fp32=
    megatron_lm_expert_tensor_parallel_size= megatron_lm_calculate_per_token_loss=
    megatron_lm_use_rotary_position_embeddings= fp8_backend= fp8_use_autocast_during_eval fp8_margin=
    fp8_interval= fp8_format= fp8_amax_history_len= fp8_amax_compute_algo= fp8_override_linear_precision=
    fp8_opt_level= fp8_enable_fsdp_float8_all_gather= fp8_pad_inner_dim= aws_access_key_id=
    aws_secret_access_key= debug mpirun_hostfile= parallelism_config_dp_replicate_size=
    parallelism_config_dp_shard_size= parallelism_config_tp_size= parallelism_config_cp_size=
    parallelism_config_cp_backend= parallelism_config_cp_comm_strategy= parallelism_config_sp_size=
    parallelism_config_sp_backend= parallelism_config_sp_seq_length=
    parallelism_config_sp_seq_length_is_variable= parallelism_config_sp_attn_implementation=
"""

#: mpirun(1) of Open MPI 4.1 and 5.0; the last two lines are those of Hydra (MPICH 4, Intel MPI).
_MPIRUN: Final = """
    np|-np|n|-n|c= npernode|N|-npernode= pernode hostfile|-hostfile|machinefile|-machinefile= host|H|-host= x=
    mca|-mca|omca== gmca|pmixmca|prtemca== am|tune= bind-to|-bind-to= map-by|-map-by= rank-by|-rank-by=
    rankfile|-rankfile|-rf= oversubscribe|-oversubscribe nooversubscribe allow-run-as-root tag-output
    timestamp-output report-bindings|-report-bindings display-map display output= output-filename= prefix= path=
    wdir|-wdir|-wd= timeout= cpus-per-proc|-cpus-per-proc= cpu-set= quiet|q verbose|v version|V help|h
    bind-to-core bynode byslot bycore personality= enable-recovery novm stdin= xterm= merge-stderr-to-stdout
    ppn|-ppn|perhost|-perhost= hosts|-hosts= configfile|-configfile|f|-f= iface|-iface=
    launcher|-launcher|-bootstrap= genv|-genv==
    env|-env== genvlist|-genvlist= genvall|-genvall prepend-rank outfile-pattern=
"""

_PYTHON: Final = """
    b B c= d E h i I m= O OO P q s S u v V W= x X=
"""  # python3 --help, 3.13

TABLES: Final[Mapping[str, Table]] = {
    "sbatch": _table(_SLURM_SOURCE, _SLURM + _SBATCH + _PYXIS),
    "salloc": _table(_SLURM_SOURCE, _SLURM + _SALLOC + _PYXIS),
    "srun": _table(_SLURM_SOURCE, _SLURM + _SRUN + _PYXIS),
    "torchrun": _table("torch 2.13.0", _TORCHRUN + "use_env|use-env"),
    "deepspeed": _table("DeepSpeed 0.19.8", _DEEPSPEED),
    "accelerate": _table("accelerate 1.15.0", _ACCELERATE, abbreviates=False, dashes=True),
    "mpirun": _table("mpirun(1) of Open MPI 4.1 and 5.0, Hydra of MPICH 4", _MPIRUN, single_dash=True),
    "python": _table("python3 --help, 3.13", _PYTHON, abbreviates=False),
    "pdsh": _table("pdsh(1) 2.34", "w= x= g= X= R= f= l= t= u= S N n= d q h V b", abbreviates=False),
    "ssh": _table(
        "ssh(1) of OpenSSH 9.2",
        ("b= c= D= E= e= F= I= i= J= L= l= m= O= o= p= Q= R= S= W= w= t n N f q v x X Y A a C g K k M T V 4 6 s G y"),
        abbreviates=False,
    ),
    "env": _table("env(1) of coreutils 9.1", "i:ignore-environment u:unset= C:chdir= S:split-string= 0:null v:debug"),
    "numactl": _table(
        "numactl(8) 2.0.16",
        ("i:interleave= N:cpunodebind= m:membind= C:physcpubind= p:preferred= l:localalloc a:all b:balancing"),
    ),
    "nice": _table("nice(1) of coreutils 9.1", "n:adjustment="),
    "timeout": _table("timeout(1) of coreutils 9.1", "s:signal= k:kill-after= foreground preserve-status v:verbose"),
    "stdbuf": _table("stdbuf(1) of coreutils 9.1", "i:input= o:output= e:error="),
    "time": _table("time(1) 1.9", "p:portability v:verbose a:append o:output= f:format="),
    "taskset": _table("taskset(1) of util-linux 2.38", "a:all-tasks c:cpu-list"),
    "exec": _table("bash(1) 5.2", "a= c l"),
    "singularity": _table(
        "apptainer exec --help, 1.3; singularity 3.11",
        (
            "B:bind= mount= e:cleanenv c:contain C:containall nv nvccli rocm env= env-file= H:home= pwd|cwd= "
            "w:writable writable-tmpfs W:workdir= S:scratch= overlay= no-home f:fakeroot u:userns i:ipc p:pid "
            "n:net network= hostname= no-mount= add-caps= drop-caps= security= apply-cgroups= app= no-init "
            "allow-setuid keep-privs no-privs"
        ),
    ),
    "docker": _table(
        "docker run --help, 27",
        (
            "d:detach i:interactive t:tty rm gpus= v:volume= mount= w:workdir= e:env= env-file= u:user= name= "
            "network|net= ipc= shm-size= ulimit= h:hostname= p:publish= privileged cap-add= device= runtime= "
            "entrypoint= init m:memory= cpus= cpuset-cpus= security-opt= pid= platform= pull= restart= "
            "l:label= add-host= tmpfs= group-add= log-driver="
        ),
    ),
    "enroot": _table("enroot start --help, 3.5", "c:conf= e:env= m:mount= rc= r:root w:rw"),
    "nsys": _table(
        "nsys profile --help, 2024",
        (
            "t:trace= o:output= f:force-overwrite= s:sample= c:capture-range= capture-range-end= "
            "w:show-output= stats= x:stop-on-exit= y:delay= d:duration= e:env-var= gpu-metrics-device= "
            "cuda-memory-usage= cudabacktrace= python-backtrace= kill="
        ),
    ),
}
