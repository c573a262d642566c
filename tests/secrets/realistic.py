"""Secrets as people write them, none of them real: a text, and the part of it that is secret."""

from __future__ import annotations

import base64
import json


def fake(length: int, alphabet: str = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zC0fL") -> str:
    """Letters and digits that look random."""
    return (alphabet * (length // len(alphabet) + 1))[:length]


def hexa(length: int) -> str:
    """Hexadecimal digits that look random."""
    return fake(length, "0f9e8d7c6b5a4938271605142332")


def low(length: int) -> str:
    """Small letters and digits that look random."""
    return fake(length, "a1b2c3d4e5f6g7h8j9k0m1n2")


# apart, so that no other program takes this file for a key
_KEY = "-----BEGIN PRIVATE " + "KEY-----\nMIIE" + fake(60)
_ACCOUNT = json.dumps({"type": "service_account", "private_key_id": hexa(40), "private_key": _KEY})
B64 = base64.b64encode(_ACCOUNT.encode()).decode()
NEPTUNE = base64.b64encode(b'{"api_address":"https://app.neptune.ai","api_key":"abc123"}').decode()
SECRETS: list[tuple[str, str]] = [
    ("curl -u me:" + "hunter2pw https://h/x", "hunter2pw"),
    ("curl --user 'me:pw4711x' https://h/x", "pw4711x"),
    ("wget --password=s3cretpw https://h", "s3cretpw"),
    ("-u me:pw4711x", "pw4711x"),
    ("mysql -uroot -pS3cretPw9 db", "S3cretPw9"),
    ("sshpass -pS3cretPw9 ssh host", "S3cretPw9"),
    ("sshpass -p 'S3cret Pw9' ssh host", "S3cret Pw9"),
    ("7z x -pS3cretPw9 data.7z", "S3cretPw9"),
    ("unzip -P S3cretPw9 data.zip", "S3cretPw9"),
    ("echo hunter2pw | docker login -u me --password-stdin nvcr.io", "hunter2pw"),
    ("echo 'hunter2pw' | sudo -S mount /x", "hunter2pw"),
    ("printf '%s' hunter2pw | kinit me", "hunter2pw"),
    ("docker login -u me -p hunter2pw nvcr.io", "hunter2pw"),
    ("echo hunter2pw | passwd --stdin joe", "hunter2pw"),
    ("sudo -S <<< hunter2pw mount /x", "hunter2pw"),
    ("openssl enc -d -aes256 -k S3cretPw9 -in x", "S3cretPw9"),
    ("openssl enc -d -pass pass:S3cretPw9 -in x", "S3cretPw9"),
    ("gpg --batch --passphrase S3cretPw9 -d x.gpg", "S3cretPw9"),
    ("redis-cli -a S3cretPw9 ping", "S3cretPw9"),
    ("PGPASSWORD=S3cretPw9 psql", "S3cretPw9"),
    ("huggingface-cli login --token hf_" + fake(34), "hf_" + fake(34)),
    ("wandb login " + hexa(40), hexa(40)),
    ("ya29." + fake(120), "ya29." + fake(120)),
    ("1//0" + fake(62) + "-x", "1//0" + fake(62)),
    ("GOOGLE_CREDS=" + B64, B64),
    ("gcp: " + B64, B64),
    (
        "https://d1.cloudfront.net/x?Expires=1700000000&Signature="
        + fake(120)
        + "&Key-Pair-Id=K2JCJMDEHXQW5F",
        fake(120),
    ),
    (
        "https://storage.googleapis.com/b/o?GoogleAccessId=a&Expires=1&Signature="
        + fake(90)
        + "%3D",
        fake(90),
    ),
    (
        "https://b.s3.amazonaws.com/o?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=" + hexa(64),
        hexa(64),
    ),
    (
        "https://b.oss-cn.aliyuncs.com/o?OSSAccessKeyId=LTAI5tAbCdEfGhJk&Signature=" + fake(28),
        fake(28),
    ),
    ("gsk_" + fake(52), "gsk_" + fake(52)),
    ("xai-" + fake(80), "xai-" + fake(80)),
    ("r8_" + fake(37), "r8_" + fake(37)),
    ("rpa_" + fake(42).upper(), "rpa_" + fake(42).upper()),
    ("wandb_v1_" + fake(60), "wandb_v1_" + fake(60)),
    (
        "https://contoso.webhook.office.com/webhookb2/12345678-abcd-1234-abcd-1234567890ab@12345678-abcd-1234-abcd-1234567890ab/IncomingWebhook/"
        + hexa(32)
        + "/12345678-abcd-1234-abcd-1234567890ab",
        hexa(32),
    ),
    ("https://api.telegram.org/bot123456789:AA" + fake(33) + "/sendMessage", "AA" + fake(33)),
    ("--notify 123456789:AA" + fake(33), "AA" + fake(33)),
    ("PASSWORT=geheim4711", "geheim4711"),
    ("MOT_DE_PASSE=soleil4711", "soleil4711"),
    ("KENNWORT: geheim4711x", "geheim4711x"),
    ("SENHA=segredo123", "segredo123"),
    ("WACHTWOORD=geheim123", "geheim123"),
    ("CONTRASEÑA=secreto123", "secreto123"),
    ("contraseña: secreto123", "secreto123"),
    ("LOSENORD=hemlig123", "hemlig123"),
    ("HASLO=tajne1234", "tajne1234"),
    ('{"api_key": "s3cretvalue99"}', "s3cretvalue99"),
    ('["--config","{\\"api_key\\": \\"s3cretvalue99\\"}"]', "s3cretvalue99"),
    ('"{\\\\\\"api_key\\\\\\": \\\\\\"s3cretvalue99\\\\\\"}"', "s3cretvalue99"),
    ("--config={'api_key': 's3cretvalue99'}", "s3cretvalue99"),
    ('export DB_PASSWORD="pa\\"ss9word"', "ss9word"),
    ("password: 'it''s-9secret'", "9secret"),
    ("Authorization: Bearer " + fake(40), fake(40)),
    ("Authorization: Basic bWU6cHc0NzExeA==", "bWU6cHc0NzExeA=="),
    ("-H 'X-Api-Key: " + low(32) + "'", low(32)),
    ("--header=PRIVATE-TOKEN:glpat-" + fake(20), "glpat-" + fake(20)),
    ("glptt-" + hexa(40), "glptt-" + hexa(40)),
    ("github_pat_" + fake(82), "github_pat_" + fake(82)),
    ("ghs_" + fake(36), "ghs_" + fake(36)),
    ("AKIAQ3EGRTYUIOP4ZXCV", "AKIAQ3EGRTYUIOP4ZXCV"),
    (
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzKEYw",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzzzzzKEYw",
    ),
    ("AccountKey=" + fake(86) + "==;EndpointSuffix=core.windows.net", fake(86)),
    ("SharedAccessKey=" + fake(43) + "=", fake(43)),
    ("https://a.blob.core.windows.net/c?sv=2022&sig=" + fake(43) + "%3D", fake(43)),
    ("sk-ant-api03-" + fake(93) + "AA", "sk-ant-api03-" + fake(93)),
    ("sk-proj-" + fake(60), "sk-proj-" + fake(60)),
    ("sk-or-v1-" + hexa(64), hexa(64)),
    ("pplx-" + fake(48), "pplx-" + fake(48)),
    ("AIza" + fake(35), "AIza" + fake(35)),
    ("GOCSPX-" + fake(28), "GOCSPX-" + fake(28)),
    ("xoxb-123456789012-123456789012-" + fake(24), fake(24)),
    ("xapp-1-A012ABCDEF-1234567890-" + hexa(64), hexa(64)),
    ("https://hooks.slack.com/services/T000/B000/" + fake(44), fake(44)),
    ("https://discord.com/api/webhooks/123456789012345678/" + fake(68), fake(68)),
    ("SG." + fake(22) + "." + fake(43), fake(43)),
    ("sk_live_" + fake(24), "sk_live_" + fake(24)),
    ("dckr_pat_" + fake(27), "dckr_pat_" + fake(27)),
    ("dop_v1_" + hexa(64), hexa(64)),
    ("npm_" + fake(36), "npm_" + fake(36)),
    ("pypi-AgEIcHlwaS5vcmc" + fake(60), fake(60)),
    ("hvs." + fake(95), "hvs." + fake(95)),
    ("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0." + fake(43), fake(43)),
    ("dapi" + hexa(32), "dapi" + hexa(32)),
    ("ops_eyJ" + fake(250), fake(250)),
    ("nvapi-" + fake(64), "nvapi-" + fake(64)),
    (
        "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2,
        "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L",
    ),
    ("glc_" + fake(60), "glc_" + fake(60)),
    ("lin_api_" + fake(40), "lin_api_" + fake(40)),
    ("tgp_v1_" + fake(43), "tgp_v1_" + fake(43)),
    ("fw_" + fake(24), "fw_" + fake(24)),
    ("csk-" + low(48), "csk-" + low(48)),
    ("user:" + "pw4711x@registry.example.org/img:1", "pw4711x"),
    ("--container-image=me:pw4711x@nvcr.io#nvidia/pytorch:24.01", "pw4711x"),
    ("docker://me:pw4711x@nvcr.io/x", "pw4711x"),
    ("postgres://joe:sword%40fish1@db/runs", "sword%40fish1"),
    ("https://ghp_" + fake(36) + "@github.com/o/r", "ghp_" + fake(36)),
    ("redis://:pw4711xyz@h:6379/0", "pw4711xyz"),
    ("mongodb+srv://u:pw4711xyz@c.mongodb.net", "pw4711xyz"),
    ("machine api.wandb.ai login user password " + hexa(40), hexa(40)),
    ("neptune_api_token: " + NEPTUNE, NEPTUNE),
    ("--set mlflow.tracking_password=s3cretpw", "s3cretpw"),
    ("HUGGINGFACE_TOKEN=" + low(37), low(37)),
    ("export COMET_API_KEY=" + fake(25), fake(25)),
    ("client_secret=abc8Q~" + fake(34), "abc8Q~" + fake(31)),
    ("secretKey: Zq9kLm42Qq7abcd", "Zq9kLm42Qq7abcd"),
    ("api.key=Zq9kLm42Qq7abcd", "Zq9kLm42Qq7abcd"),
    ('<add key="Password" value="Zq9kLm42Qq7" />', "Zq9kLm42Qq7"),
    ("password%3DZq9kLm42Qq7%26x", "Zq9kLm42Qq7"),
    ("%22api_key%22%3A%22Zq9kLm42Qq7%22", "Zq9kLm42Qq7"),
    ("&quot;api_key&quot;: &quot;Zq9kLm42Qq7&quot;", "Zq9kLm42Qq7"),
]
