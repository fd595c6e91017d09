"""A trainer of one rank. For each batch, it records when it asked and when it received it, in seconds since boot."""

import argparse
import time

import millrace


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("socket")
    p.add_argument("--pause", type=float, default=0, help="seconds a step")
    p.add_argument("--log", required=True)
    p.add_argument("--start")
    p.add_argument("--steps", type=int, default=1 << 60)
    a = p.parse_args()
    loader = millrace.connect(a.socket, tensors="numpy", start=a.start)
    batches = iter(loader)
    with open(a.log, "a") as log:
        for _ in range(a.steps):
            asked = time.clock_gettime(time.CLOCK_BOOTTIME)
            batch = next(batches, None)
            if batch is None:
                return
            batch["tokens"][:, 0].sum()
            log.write(f"{asked:.6f} {time.clock_gettime(time.CLOCK_BOOTTIME):.6f}\n")
            log.flush()
            del batch
            if a.pause:
                time.sleep(a.pause)


if __name__ == "__main__":
    main()
