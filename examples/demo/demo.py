"""Shows Millrace on one machine in a minute or two, with real files, a real training loop, and faults on the way.

    make demo              with NumPy, without large downloads
    make demo DEMO=torch   with PyTorch, which is a large download

A small GPT trains on two data-parallel ranks. The mixture of three sources changes during the training. The demo kills
a loader, and its shadow takes over. It stops the training and resumes from the checkpoint on another number of ranks.
The trainers compute a content digest of every step from their batches, and the demo compares it with `millrace plan`.
demo-run/report.html shows the results.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.util
import json
import math
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(Path(__file__).resolve().parent), str(REPOSITORY / "clients" / "python" / "src")]

try:
    import millrace
except ImportError as e:
    sys.exit(f"demo: {e}. `make demo` installs the missing packages.")

import corpus  # noqa: E402
import report  # noqa: E402
from mixture import FIRST, FULL, QUICK, Say, Size, make_corpus, target  # noqa: E402
from model import Shape  # noqa: E402
from ranks import LoaderKill, Step, take_part  # noqa: E402
from run import Run, RunFailed  # noqa: E402
from run import millrace as command  # noqa: E402
from trainer import Orders  # noqa: E402

MARK = ".millrace-demo"  # marks the directory of a demo, which the next demo may delete


class Watch:
    """Prints the training's progress."""

    def __init__(self, say: Say, every: int) -> None:
        self._say, self._every = say, every
        self._tokens: Dict[str, int] = collections.Counter()
        self._seconds, self._all = 0.0, 0

    def step(self, s: Step) -> None:
        """Reports one more step."""
        self._tokens.update(s.tokens)
        self._seconds += s.seconds
        self._all += s.total() if s.seconds else 0
        if (s.step + 1) % self._every:
            return
        total = sum(self._tokens.values())
        shares = "  ".join(f"{name} {100 * self._tokens[name] / total:2.0f} %" for name in FIRST)
        rate = f"{self._all / self._seconds / 1e3:5.1f}k tokens/s" if self._seconds else ""
        self._say(f"step {s.step:3d}  loss {s.loss:.3f}  fill {100 * s.fill:5.1f} %  {shares}  {rate}")
        self._tokens.clear()
        self._seconds, self._all = 0.0, 0


def first_part(
    binary: Path, size: Size, model: str, shape: Shape, place: Path, say: Say
) -> "tuple[List[Step], LoaderKill]":
    """Trains, kills a loader, saves, and stops a few steps later."""
    steps: List[Step] = []
    watch = Watch(say, size.steps // 16)
    with Run(binary, place / "mixture.yaml", size.ranks, place / "run-1") as run:
        say(f"roles: {', '.join(sorted(r['name'] for r in run.roles()))}")
        kill = LoaderKill(run)

        def look() -> None:
            if kill.look():
                say(
                    f">> {kill.successor}, its shadow, is the loader now: seen {kill.seconds:.2f} s after the kill; "
                    "a fresh process stands by for it"
                )

        orders = [
            Orders(
                f"{run.directory}/rank-{r}.sock", r, size.ranks, model, shape, size.rate, size.steps, None,
                place / "checkpoint", size.saved_at, size.left_at,
            )
            for r in range(size.ranks)
        ]
        with contextlib.closing(take_part(run, orders, look)) as part:
            for step in part:
                steps.append(step)
                watch.step(step)
                if step.step == size.kill_at:
                    kill.strike(step.step)
                    say(f">> kill -9 {kill.killed}, the loader {kill.name}, after step {step.step}")
                if step.saved:
                    state = Path(step.saved + ".json").stat().st_size
                    say(
                        f">> checkpoint after step {step.step}: weights in checkpoint.npz, "
                        f"Millrace's state ({state} bytes of JSON) in checkpoint.json"
                    )
        say(f">> stop after step {steps[-1].step}: SIGINT to millrace up")
        run.stop()
    need_clean(run, say)
    if not kill.successor:
        raise RunFailed(f"{kill.name} was killed after step {kill.step}, and no shadow took over")
    before, after = ([s for s in steps if (s.step > kill.step) == later and s.step] for later in (False, True))
    waits = [f"{1e3 * max(s.waited for s in part):.0f} ms" for part in (before, after)]
    say(
        f"the longest wait for a batch: {waits[0]} in the steps before the kill, "
        f"{waits[1]} in the {len(after)} after it"
    )
    return steps, kill


def second_part(binary: Path, size: Size, model: str, shape: Shape, place: Path, say: Say) -> List[Step]:
    """Resumes from the checkpoint on other ranks in a new run directory, and trains to the end."""
    steps: List[Step] = []
    watch = Watch(say, size.steps // 16)
    with Run(binary, place / "mixture.yaml", size.then_ranks, place / "run-2") as run:
        orders = [
            Orders(
                f"{run.directory}/rank-{r}.sock", r, size.then_ranks, model, shape, size.rate, size.steps,
                place / "checkpoint",
            )
            for r in range(size.then_ranks)
        ]
        with contextlib.closing(take_part(run, orders, lambda: None)) as part:
            for step in part:
                steps.append(step)
                watch.step(step)
        run.wait()
    say(f"the run ended by itself after step {steps[-1].step} on every rank, with status 0")
    need_clean(run, say)
    return steps


def need_clean(run: Run, say: Say) -> None:
    """Raises an error if a process or a socket of the run is left."""
    if left := run.left_behind():
        raise RunFailed(f"left behind by {run.directory}: {', '.join(left)}")
    say("no process and no socket of the run is left")


def planned(binary: Path, size: Size, place: Path) -> Dict[int, str]:
    """Returns the content digest of every step, planned again from the mixture file."""
    lines = command(
        binary, "plan", place / "mixture.yaml", "--steps", f"0..{size.steps}", "--ranks", "1", "--json"
    ).splitlines()
    return {p["step"]: p["content_digest"] for p in map(json.loads, lines)}


def compare(size: Size, first: List[Step], second: List[Step], plan: Dict[int, str], say: Say) -> None:
    """Prints the compared digests. Raises an error if one differs from the plan."""
    if [s.step for s in first] != list(range(size.left_at + 1)) or [s.step for s in second] != list(
        range(size.saved_at + 1, size.steps)
    ):
        raise RunFailed("the trainers did not get every step exactly once")
    again = {s.step: s for s in first}
    shown = 0
    for s in second:
        before = again.get(s.step)
        if before is None:
            break
        same = "=" if before.digest == s.digest == plan[s.step] else "IS NOT"
        if shown < 3 or same != "=":
            say(
                f"step {s.step:3d}: {s.digest[:16]} on {s.ranks} rank{'s' * (s.ranks > 1)} {same} "
                f"{before.digest[:16]} on {before.ranks} ranks {same} {plan[s.step][:16]} planned"
            )
            shown += 1
    wrong = sorted({s.step for s in first + second if s.digest != plan.get(s.step)})
    if wrong:
        raise RunFailed(f"the content of steps {wrong} differs from the plan")
    both = size.left_at - size.saved_at
    say(
        f"{both} steps came twice, on {size.ranks} ranks before the stop and on {size.then_ranks} after it, "
        "with equal content"
    )
    say(f"all {len(first) + len(second)} content digests are those that `millrace plan` names")


def summarise(size: Size, steps: List[Step], say: Say) -> None:
    """Prints the mixture over the whole training."""
    tokens: Dict[str, int] = collections.Counter()
    wanted: Dict[str, float] = collections.defaultdict(float)
    for s in steps:
        tokens.update(s.tokens)
        for name, weight in target(size, s.step).items():
            wanted[name] += weight * s.total()
    total = sum(tokens.values())
    say("source     tokens   realised    target")
    for name in FIRST:
        say(f"{name:8s} {tokens[name]:8,d}   {100 * tokens[name] / total:6.2f} %  {100 * wanted[name] / total:6.2f} %")


def ahead(first: List[Step], second: List[Step]) -> List[Step]:
    """Returns the steps behind the final weights: the first part up to its checkpoint, then the second part."""
    return [s for s in first if s.step < second[0].step] + second


def need_progress(size: Size, steps: List[Step], say: Say) -> None:
    """Raises an error if the loss has not fallen."""
    few = max(2, len(steps) // 20)
    begun, ended = (sum(s.loss for s in part) / few for part in (steps[:few], steps[-few:]))
    say(f"loss {begun:.2f} -> {ended:.2f} nats a token (guessing evenly: {math.log(size.vocabulary + 1):.2f})")
    if not ended < 0.85 * begun:
        raise RunFailed(f"the model did not learn: loss {begun:.2f}, then {ended:.2f}")


def demonstrate(binary: Path, size: Size, model: str, place: Path, picture: Optional[Path]) -> None:
    """Runs the whole demo."""
    say = Say()
    say.title("A corpus out of real files of this machine")
    documents = make_corpus(binary, size, place, say)

    say.title("millrace check")
    for line in command(binary, "check", place / "mixture.yaml", "--ranks", size.ranks).splitlines():
        say(line)

    shape = Shape(-(-(size.vocabulary + 1) // 8) * 8, size.context, size.width)
    say.title(
        f"Training on {size.ranks} ranks: a GPT with {shape.size() / 1e6:.1f} M parameters "
        f"in {'PyTorch' if model == 'torch' else 'NumPy'}"
    )
    first, kill = first_part(binary, size, model, shape, place, say)
    say.title(f"On from the checkpoint, on {size.then_ranks} rank{'s' * (size.then_ranks > 1)}, in a new run directory")
    second = second_part(binary, size, model, shape, place, say)

    say.title("The trainers' batches, compared with the plan")
    plan = planned(binary, size, place)
    compare(size, first, second, plan, say)
    steps = ahead(first, second)
    summarise(size, steps, say)
    need_progress(size, steps, say)

    facts = report.Facts(
        first,
        second,
        kill,
        plan,
        {s.step: target(size, s.step) for s in steps},
        documents,
        model,
        shape,
        time.monotonic() - say.began,
    )
    (place / "report.html").write_text(report.page(facts), encoding="utf-8")
    if picture:
        picture.write_text(report.picture(facts), encoding="utf-8")
    say.title(f"Done. The whole run as a page: {place / 'report.html'}")


def prepare(place: Path) -> None:
    """Makes an empty directory for the demo. Deletes only the files of an earlier demo."""
    if place.exists() and any(place.iterdir()):
        if not (place / MARK).exists():
            raise RunFailed(f"{place} holds something else than an earlier demo; name another directory with --dir")
        shutil.rmtree(place)
    place.mkdir(parents=True, exist_ok=True)
    (place / MARK).touch()


def _terminate(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    arguments = argparse.ArgumentParser(description="Millrace on real files of this machine: see the top of this file.")
    arguments.add_argument(
        "--model",
        choices=("numpy", "torch", "auto"),
        default="auto",
        help="the library that computes the model (auto: torch if it is installed)",
    )
    arguments.add_argument("--quick", action="store_true", help="a smaller model and fewer steps")
    arguments.add_argument(
        "--dir", type=Path, default=REPOSITORY / "demo-run", help="the output directory (demo-run)"
    )
    arguments.add_argument("--binary", type=Path, default=REPOSITORY / "millrace", help="the program (./millrace)")
    arguments.add_argument("--picture", type=Path, help="also write the page's charts as one SVG file")
    args = arguments.parse_args()
    signal.signal(signal.SIGTERM, _terminate)
    try:
        torch = importlib.util.find_spec("torch") is not None
        if args.model == "torch" and not torch:
            raise RunFailed("PyTorch is not installed in this Python; leave out --model, and NumPy computes the model")
        if not args.binary.exists():
            raise RunFailed(f"{args.binary} is not there: `make build` builds it")
        place = args.dir.resolve()
        prepare(place)
        model = ("torch" if torch else "numpy") if args.model == "auto" else args.model
        demonstrate(args.binary.resolve(), QUICK if args.quick else FULL, model, place, args.picture)
    except KeyboardInterrupt:
        print("\ndemo: interrupted; all its processes were stopped", file=sys.stderr)
        return 130
    except (RunFailed, corpus.CorpusError, millrace.RunError, OSError) as e:
        print(f"\ndemo: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
