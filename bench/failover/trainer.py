"""A trainer of one rank. For each batch, it records when it asked and when it received it, in seconds since boot, and
how long it waited for a CPU in between."""

import argparse
import time

import millrace


def queued() -> float:
    """Returns the seconds that this thread has waited for a CPU."""
    with open("/proc/thread-self/schedstat") as f:
        return int(f.read().split()[1]) / 1e9


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("socket")
    p.add_argument("--pause", type=float, default=0, help="seconds a step")
    p.add_argument("--even", action="store_true", help="catch up after a wait: steps are due at regular times")
    p.add_argument("--log", required=True)
    p.add_argument("--start")
    p.add_argument("--patience", type=float, default=1.0, help="seconds to wait for a host that is away")
    p.add_argument("--steps", type=int, default=1 << 60)
    a = p.parse_args()
    loader = millrace.connect(a.socket, tensors="numpy", start=a.start, patience=a.patience)
    batches, due = iter(loader), 0.0
    with open(a.log, "a") as log:
        for _ in range(a.steps):
            before = queued()
            asked = time.clock_gettime(time.CLOCK_BOOTTIME)
            batch = next(batches, None)
            if batch is None:
                return
            batch["tokens"][:, 0].sum()
            had = time.clock_gettime(time.CLOCK_BOOTTIME)
            log.write(f"{asked:.6f} {had:.6f} {queued() - before:.6f}\n")
            log.flush()
            del batch
            due = (due or had) + a.pause if a.even else had + a.pause
            time.sleep(max(0, due - time.clock_gettime(time.CLOCK_BOOTTIME)))


if __name__ == "__main__":
    main()
