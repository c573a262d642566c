"""A stand-in for a training script, of which the rank in the file `dies` exits with 13, and the
others hang.

Every rank starts a process in a session of its own, as data loaders may be, and says that it runs.
`DEAF` ranks don't end on TERM.
"""

import os
import signal
import subprocess
import time
from pathlib import Path

folder, rank = Path(os.environ["STAND_IN_FOLDER"]), os.environ["RANK"]
if os.environ.get("DEAF"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "1000"], start_new_session=True)
(folder / rank).write_text("")
while not ((folder / "dies").exists() and (folder / "dies").read_text() == rank):
    time.sleep(0.1)
os._exit(13)
