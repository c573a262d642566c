"""Secrets, none of them real, and what looks like one and is none."""

from __future__ import annotations

from typing import Any

_KIND = "OPENSSH PRIVATE KEY"  # apart, so that no other program takes this file for a key
PEM = (
    f"-----BEGIN {_KIND}-----\nb3BlbnNzaC1rZXktdjEAAAAA\nBG5vbmUAAAAEbm9uZQ\n-----END {_KIND}-----"
)
JWT = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
HF = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"
HEX = "0f9e8d7c6b5a49382716" * 2
SAS = "q7%2FJp0Zr5uXKc3nYtVw1aBcDeFgHiJkLmNoPqRsTuV%3D"
ACCOUNT_KEY = "Zm9vYmFyYmF6cXV4" * 5 + "Zm9vYg=="

#: Variables: name and value.
VARIABLES: dict[str, str] = {
    "HF_TOKEN": HF,
    "HUGGING_FACE_HUB_TOKEN": "hush-hush",
    "TOKEN": "tiptoe-417",
    "KEY": "k3yOfTheHouse",
    "APIKEY": "quick7silver",
    "ACCESSKEY": "quick8silver",
    "SECRET": "whisper",
    "MY_SECRET": "whisper9",
    "SECRETS": "whisper10",
    "WANDB_API_KEY": HEX,
    "AWS_ACCESS_KEY_ID": "AKIAQ3EGRTYUIOP4ZXCV",
    "AWS_SECRET_ACCESS_KEY": "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",
    "AWS_SESSION_TOKEN": "FwoGZXIvYXdzEBYaDJ",
    "DB_PASS": "hunter2",
    "DB_PASSWORD": "12345678",
    "PGPASSWORD": "hunter3",
    "SSHPASS": "hunter4",
    "PASSPHRASE": "let me in at once",
    "GITHUB_PAT": "patpatpat77",
    "GH_TOKEN": "ghp_" + "a1B2c3D4e5F6" * 3,
    "GCP_CREDENTIALS": "credo-in-unum",
    "AZURE_STORAGE_CONNECTION_STRING": (
        f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={ACCOUNT_KEY}"
    ),
    "STORAGE_SAS": f"sv=2022-11-02&sp=r&sig={SAS}",
    "AUTH": "basic-dXNlcjpwYXNz",
    "BEARER": "bear3r0fNews",
    "DATABASE_URL": "postgres://joe:swordfish1@db.example.org/runs",
    "http_proxy": "http://joe:swordfish2@proxy:3128",
    "SLURM_JWT": JWT,
    "OPENAI_API_KEY": "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT",
    "SSH_PRIVATE_KEY": PEM,
    "HF_TOKEN_PROD": "hush-prod",
    "AUTH_KEY": "supersecret",
    "X_PASS": "supersecret",
    "X_PAT": "supersecret",
    "X_SAS": "supersecret",
    "X_CREDENTIALS": "sentinel-one",
    "X_CONNECTION_STRING": "sentinel-two",
    "ROOT_PASSWORD": "#Passw0rd!",
    "SMTP_PASS": "!Secret99",
    "NCCL_DEBUG": HF.swapcase().replace("HF_", "hf_"),
    "NOTES": f"do not lose {JWT}",
}

#: Arguments, each with the part that is secret.
ARGUMENTS: list[tuple[list[str], str]] = [
    (["--hf-token", "tiptoe-arg"], "tiptoe-arg"),
    (["--hf_token=tiptoe-arg2"], "tiptoe-arg2"),
    (["--api_key=quick9silver"], "quick9silver"),
    (["--api-key", "-dash7secret"], "-dash7secret"),
    (["--token", HF], HF),
    (["--notify", f"https://discord.com/api/webhooks/123456789012345678/{HEX * 2}"], HEX * 2),
    (["--api-keys", "quick6silver"], "quick6silver"),
    (["--password", "hunter5 and more"], "hunter5 and more"),
    (["--wandb-key", HEX], HEX),
    (["--wandb.api_key=" + HEX], HEX),
    (["trainer.logger.api_key=quick0silver"], "quick0silver"),
    (["+secret=whisper7"], "whisper7"),
    (["--auth", "joe:pw4711xyz"], "pw4711xyz"),
    (["--credentials", "credo2-in-unum"], "credo2-in-unum"),
    (["--connection-string", f"AccountName=a;AccountKey={ACCOUNT_KEY}"], ACCOUNT_KEY),
    (["--data-path", f"https://acc.blob.core.windows.net/c?sv=2022-11-02&sig={SAS}"], SAS),
    (["--repo", "https://joe:swordfish3@git.example.org/r"], "swordfish3"),
    (["--note", f"token is {HF}"], HF),
    (["--header", "Authorization: Bearer abcdef0123456789"], "abcdef0123456789"),
    (["--passphrase", "opensesame"], "opensesame"),
]

#: Other places of a spec: keys under `launch`, or at the top with a slash, and the part that is
#: secret.
PLACES: list[tuple[dict[str, Any], str]] = [
    ({"script": "https://joe:swordfish4@host/train.py"}, "swordfish4"),
    ({"slurm": {"container_image": "docker://joe:swordfish5@nvcr.io/x"}}, "swordfish5"),
    ({"slurm": {"account": HF}}, HF),
    ({"slurm": {"container_mounts": [f"/d:/{HF}"]}}, HF),
    ({"azureml": {"tags": {"password": "hunter6"}}}, "hunter6"),
    ({"azureml": {"tags": {"owner": "ghp_" + "b1C2d3E4f5G6" * 3}}}, "ghp_" + "b1C2d3E4f5G6" * 3),
    ({"azureml": {"environment": "https://joe:swordfish6@acr.io/i"}}, "swordfish6"),
    ({"azureml": {"code": f"https://a.blob.core.windows.net/c?sig={SAS}"}}, SAS),
    ({"hf_token": "tiptoe-key"}, "tiptoe-key"),
    ({"environment": {HF: "1"}}, HF),
    ({"shell": {"hosts": ["node-0", "AKIAQ3EGRTYUIOP4ZXCW"]}}, "AKIAQ3EGRTYUIOP4ZXCW"),
]

#: Ordinary names and values: none is a secret.
ORDINARY: dict[str, str] = {
    "TOKENIZER": "gpt2-bpe-4711x",
    "TOKENIZERS_PARALLELISM": "false",
    "TOKENS": "300B",
    "MAX_TOKENS": "4096",
    "NCCL_IB_PKEY": "0x8001",
    "NCCL_SOCKET_IFNAME": "eth0",
    "HF_TOKEN_PATH": "/home/joe/.hf",
    "HF_TOKEN": "$HF_TOKEN",
    "WANDB_API_KEY": "${{secrets.WANDB}}",
    "KEY_FILE": "joe.k3y0001",
    "PASSWORD_FILE": "/run/secrets/pw",
    "GOOGLE_APPLICATION_CREDENTIALS": "/home/joe/gcp.json",
    "API_KEY": "<your key>",
    "OPENAI_API_KEY": "EMPTY",
    "SECRET": "",
    "USE_AUTH_TOKEN": "true",
    "SORT_KEY": "timestamp_utc0",
    "ROUTING_KEY": "gpu-a100-80gb",
    "PUBLIC_KEY": "ssh-ed25519-AAAAC3NzaC1lZDI1",
    "PAD_TOKEN": "<|pad0|>",
    "EOS_TOKEN": "endoftext4711",
    "PWD": "/work/run7",
    "http_proxy": "http://proxy:3128",
    "MASTER_ADDR": "10.0.0.1",
    "MONKEY": "banana4711xyz",
    "EXPERTS_PER_TOKEN": "8",
}
ORDINARY_ARGUMENTS = [
    *(
        "--tokenizer-model",
        "meta-llama/Llama-3.1-8B",
        "--max-tokens",
        "4096",
        "--tokenizer-type",
        "SentencePiece1",
    ),
    *("--text-key", "content_v2_0001", "--json-keys", "text", "--special-tokens", "a1b2c3d4e5"),
    *(
        "--hf-token",
        "$HF_TOKEN",
        "--key-file",
        "/home/joe/key0001",
        "--use-auth-token",
        "--seed",
        "4711",
    ),
    *("--data-path", "/data/c4_0001_text"),
]

#: More of them, with values that look like secrets.
HARMLESS: dict[str, str] = {
    "TOKENIZERS_PARALLELISM": "false",
    "NCCL_IB_HCA": "mlx5_0:1,mlx5_1:1",
    "NCCL_IB_PKEY": "0x8001",
    "NCCL_ALGO": "Tree",
    "NCCL_SOCKET_IFNAME": "eth0",
    "HF_HOME": "/data/hf",
    "HF_TOKEN_PATH": "/home/joe/.hf",
    "HF_HUB_ENABLE_HF_TRANSFER": "1",
    "WANDB_PROJECT": "llama-3-8b",
    "WANDB_MODE": "offline",
    "WANDB_DIR": "/scratch/wandb",
    "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "OMP_NUM_THREADS": "8",
    "TOKENS": "300B",
    "MAX_TOKENS": "4096",
    "KEYBOARD": "us_intl2",
    "MONKEY": "banana4711xyz",
    "PWD": "/work/run7",
    "OLDPWD": "/work/run6",
    "AUTHOR": "joe4711x",
    "PASSES": "3",
    "SECRET_NAME": "my-hf-secret-2",
    "SSH_AUTH_SOCK": "/tmp/ssh-XXXXabc/agent.123",
    "GPG_TTY": "/dev/pts/1",
    "KEY_FILE": "joe.k3y0001",
    "PATTERN": "*.jsonl.zst",
    "GLOB": "data/**/*.zst",
    "COMPASS": "north4711",
    "XDG_SESSION_ID": "c2x9",
    "AWS_PROFILE": "prod-eu2",
    "AWS_REGION": "eu-west-1",
    "AZUREML_RUN_TOKEN_PATH": "/run/tok",
    "GIT_COMMIT": "0f9e8d7c6b5a49382716051423320f9e8d7c6b5a",
    "IMAGE": "nvcr.io/nvidia/pytorch:24.01-py3",
    "MASTER_ADDR": "10.0.0.1",
    "http_proxy": "http://proxy:3128",
    "PUBLIC_KEY": "ssh-ed25519-AAAAC3NzaC1lZDI1",
    "USE_AUTH_TOKEN": "true",
    "API_KEY": "<your key>",
    "OPENAI_API_KEY": "EMPTY",
    "HF_TOKEN": "$HF_TOKEN",
    "PASSWORD_FILE": "/run/secrets/pw",
    "NCCL_TOPO_FILE": "/opt/topo-ndv5.xml",
    "LD_LIBRARY_PATH": "/usr/lib64:/opt/nccl/lib",
    "UCX_TLS": "rc,self,sm",
    "TRITON_CACHE_DIR": "/tmp/tr1t0n",
    "PASSTHROUGH": "gpu0000:3b:00.0",
    "RUN_ID": "550e8400-e29b-41d4-a716-446655440000",
}
