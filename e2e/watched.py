"""A trainer that writes its log and its stats() to files: `watched.py SOCKET LOG STATS PAUSE`."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time

from trainer import millrace


def write_stats(loader: millrace.DataLoader, path: str) -> None:
    while True:
        with open(path + ".new", "w") as f:
            json.dump(loader.stats(), f)
        os.replace(path + ".new", path)
        time.sleep(0.1)


def main(socket: str, log: str, stats: str, pause: str) -> None:
    logging.basicConfig(filename=log, format="%(created).3f %(message)s")
    loader = millrace.connect(socket, tensors="numpy", start="latest")
    watcher = threading.Thread(target=write_stats, args=(loader, stats), daemon=True)
    for batch in loader:
        if not watcher.is_alive():
            watcher.start()
        time.sleep(float(pause) if os.path.exists(stats + ".slow") else 0.002)


main(*sys.argv[1:])
