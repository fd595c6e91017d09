"""A trainer of one rank that evaluates in the middle of training: `python evaluating.py ORDERS`, ORDERS in JSON.

It prints a JSON object a line: {"train": [step, microbatch, digest]}, {"eval": [digest, ...]}, {"state": ...} at the
end. In evaluation `pause`, it prints {"paused": ...} after the second batch and waits for a line on standard input."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any, Dict

import millrace


def digest(batch: Any) -> str:
    h = hashlib.sha256()
    for name in sorted(batch):
        h.update(name.encode() + str(batch[name].shape).encode() + batch[name].tobytes())
    h.update(repr([tuple(s) for s in batch.segments]).encode())
    return h.hexdigest()


def say(**told: Any) -> None:
    print(json.dumps(told), flush=True)


class Evaluations:
    """The evaluations of a trainer, by one loader."""

    def __init__(self, orders: Dict[str, Any]) -> None:
        self.loader = millrace.connect(
            orders["socket"], tensors="numpy", stream=orders.get("stream", "eval"), patience=orders.get("patience")
        )
        self.pause = orders.get("pause")
        self.done = 0

    def run(self) -> None:
        digests = []
        for batch in self.loader:
            digests.append(digest(batch))
            if len(digests) == 2 and self.done == self.pause:
                say(paused=self.done)
                sys.stdin.readline()
        self.done += 1
        say(eval=digests)


def main() -> None:
    orders = json.loads(sys.argv[1])
    evaluations = Evaluations(orders)
    every = orders.get("every", 0)
    with millrace.connect(
        orders["socket"], tensors="numpy", start=orders.get("start"), patience=orders.get("patience")
    ) as loader:
        for batch in loader:
            say(train=[batch.step, batch.microbatch, digest(batch)])
            last = batch.microbatch == batch.num_microbatches - 1
            if last and batch.step + 1 == orders.get("steps"):
                break
            if last and every and batch.step % every == every - 1:
                evaluations.run()
        else:
            if orders.get("final"):
                evaluations.run()
        say(state=hashlib.sha256(json.dumps(loader.state_dict(), sort_keys=True).encode()).hexdigest())


if __name__ == "__main__":
    main()
