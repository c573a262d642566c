"""Train a causal language model with DeepSpeed, started by the files that dsgen writes."""

import argparse
import functools
import json
from array import array
from pathlib import Path

import deepspeed
import torch
from deepspeed.runtime.lr_schedules import WarmupCosineLR
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.integrations import HfDeepSpeedConfig


def parse():
    parser = argparse.ArgumentParser()
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument(
        "--model_name_or_path", help="train on from these weights: name on the Hub, or a folder"
    )
    model.add_argument(
        "--config_name", help="train from random weights, with the configuration of this model"
    )
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument(
        "--sequence_length", type=int, required=True, help="training.sequence_length of the spec"
    )
    parser.add_argument("--data_path", required=True, help="JSON lines, each with a text")
    parser.add_argument("--save_dir")
    parser.add_argument("--load_dir")
    parser.add_argument("--save_interval", type=int, default=1000)
    parser.add_argument("--log_dir", help="gets loss.jsonl")
    parser.add_argument("--gradient_checkpointing", action="store_true")
    return deepspeed.add_config_arguments(parser).parse_args()


def read_samples(options):
    """Return rows of one length: the texts one after another, cut into pieces."""
    tokenizer = AutoTokenizer.from_pretrained(options.model_name_or_path or options.config_name)
    tokens = array("i")  # 4 bytes a token
    with Path(options.data_path).open(encoding="utf-8") as lines:
        for line in lines:
            tokens.extend(
                [*tokenizer(json.loads(line)["text"])["input_ids"], tokenizer.eos_token_id]
            )
    length = options.sequence_length
    return torch.frombuffer(tokens, dtype=torch.int32)[: len(tokens) // length * length].view(
        -1, length
    )


@functools.lru_cache(maxsize=2)
def shuffled(count, epoch):
    """Return the order of an epoch's samples: the same in each rank and after a restart."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(epoch))


def batch_at(samples, first, count):
    """Return so many samples from this place on, counted from the start of the run."""
    places = (divmod(place, len(samples)) for place in range(first, first + count))
    return torch.stack(
        [samples[shuffled(len(samples), epoch)[place]] for epoch, place in places]
    ).long()


def build(options):
    """Return the model: with the weights of --model_name_or_path, or random ones."""
    config = HfDeepSpeedConfig(
        options.deepspeed_config
    )  # while it lives, transformers loads shares for ZeRO 3
    attention = {
        "attn_implementation": "flash_attention_2" if torch.cuda.is_available() else "sdpa"
    }
    if options.model_name_or_path:
        half = config.is_true("bf16.enabled") or config.is_true("fp16.enabled")
        dtype = "auto" if half else torch.float32
        model = AutoModelForCausalLM.from_pretrained(
            options.model_name_or_path, dtype=dtype, **attention
        )
    else:
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(options.config_name), **attention
        )
    model.config.use_cache = False
    if options.gradient_checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def report(options, step, loss):
    print(f"step {step}: loss {loss:.3f}", flush=True)
    if options.log_dir:
        folder = Path(options.log_dir)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "loss.jsonl").open("a", encoding="utf-8") as file:
            print(json.dumps({"step": step, "loss": loss}), file=file)


def main():
    options = parse()
    deepspeed.init_distributed()
    torch.manual_seed(0)
    samples, model = read_samples(options), build(options)
    warmup = options.steps // 100 + 2
    engine, *_ = deepspeed.initialize(
        args=options,
        model=model,
        model_parameters=model.parameters(),
        lr_scheduler=lambda optimizer: WarmupCosineLR(
            optimizer, options.steps, warmup_num_steps=warmup
        ),
    )
    micro, ranks = engine.train_micro_batch_size_per_gpu(), torch.distributed.get_world_size()
    path, state = engine.load_checkpoint(options.load_dir) if options.load_dir else (None, {})
    step = state["step"] if path else 0
    while step < options.steps:
        for index in range(engine.gradient_accumulation_steps()):
            passes = step * engine.gradient_accumulation_steps() + index
            first = (passes * ranks + torch.distributed.get_rank()) * micro
            rows = batch_at(samples, first, micro).to(engine.device)
            loss = engine(input_ids=rows, labels=rows).loss
            engine.backward(loss)
            engine.step()
        step += 1
        if torch.distributed.get_rank() == 0:
            report(options, step, loss.item())
        if options.save_dir and (step % options.save_interval == 0 or step == options.steps):
            engine.save_checkpoint(options.save_dir, client_state={"step": step})
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
