"""Two problems, one scripted proposer, and optimisers that use it: for `just bench-research`.

    arena.py serve PROBLEM SEED                 one proposal for each id of a parent on stdin
    arena.py play METHOD PROBLEM SEED BUDGET    METHOD is greedy, openevolve, gepa or gepa-cached
    arena.py begin PROBLEM SEED                 prints the first candidate
    arena.py edit PROBLEM SEED FILE PROMPT      makes the proposal of an experiment in a file
    arena.py measure PROBLEM FILE               prints the value of a file

A candidate is a text with one number on each line. The n-th proposal of a run draws from the same
random numbers in every method, so methods differ only in the parent that they choose and in what
they keep. No method asks a model: the proposer takes the place of one, through the interface that
each package has for it; all their other settings are their defaults. `gepa` evaluates the parent of
each proposal again, which is its default; `gepa-cached` is the same with its own cache.

`play` prints one JSON object: the best value after each evaluation, and seconds of the whole run and
of its evaluations. Every call of the evaluator is an evaluation.
"""

import json
import math
import os
import random
import re
import sys
import tempfile
import time

CIRCLES = 26
DIMENSIONS = 8


class Packing:
    """26 circles in the unit square: the largest sum of radii for given centres, by a linear program."""

    better = "higher"

    def start(self, rng):
        return [rng.random() for _ in range(2 * CIRCLES)]

    def mutate(self, point, rng):
        point = list(point)
        step = 10 ** rng.uniform(-2.5, -0.3)
        for circle in rng.sample(range(CIRCLES), rng.choice((1, 1, 2, 3))):
            for axis in (0, 1):
                at = 2 * circle + axis
                point[at] = min(1.0, max(0.0, point[at] + rng.gauss(0.0, step)))
        return point

    def value(self, point):
        import numpy
        from scipy.optimize import linprog

        centres = numpy.array(point).reshape(CIRCLES, 2)
        first, second = numpy.triu_indices(CIRCLES, 1)
        pairs = numpy.zeros((len(first), CIRCLES))
        pairs[numpy.arange(len(first)), first] = 1.0
        pairs[numpy.arange(len(first)), second] = 1.0
        apart = numpy.linalg.norm(centres[first] - centres[second], axis=1)
        border = numpy.minimum(centres, 1.0 - centres).min(axis=1)
        bounds = [(0.0, float(limit)) for limit in border]
        found = linprog(-numpy.ones(CIRCLES), A_ub=pairs, b_ub=apart, bounds=bounds, method="highs")
        return float(-found.fun)

    def score(self, value):
        return value


class Rastrigin:
    """A bowl with many local minima in eight dimensions; the best value is 0."""

    better = "lower"

    def start(self, rng):
        return [rng.uniform(-5.12, 5.12) for _ in range(DIMENSIONS)]

    def mutate(self, point, rng):
        point = list(point)
        step = 10 ** rng.uniform(-2.0, 0.5)
        for at in rng.sample(range(DIMENSIONS), rng.choice((1, 1, 2, 3))):
            point[at] = min(5.12, max(-5.12, point[at] + rng.gauss(0.0, step)))
        return point

    def value(self, point):
        return 10.0 * DIMENSIONS + sum(x * x - 10.0 * math.cos(2.0 * math.pi * x) for x in point)

    def score(self, value):
        """Positive and higher for better ones, as the packages expect."""
        return 1.0 / (1.0 + value)


PROBLEMS = {"packing": Packing, "rastrigin": Rastrigin}


def text_of(point):
    return "".join(f"{x!r}\n" for x in point)


def point_of(text):
    return [float(line) for line in text.split()]


class Arena:
    """A run on a problem. What was evaluated is in a file, because some methods use processes."""

    def __init__(self, problem, seed, log):
        self.problem, self.seed, self.log = PROBLEMS[problem](), int(seed), log

    def rng(self, n):
        return random.Random(f"{self.seed}:{n}")

    def start(self):
        return text_of(self.problem.start(self.rng("start")))

    def evaluated(self):
        with open(self.log, encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def propose(self, parent, n):
        return text_of(self.problem.mutate(point_of(parent), self.rng(n)))

    def evaluate(self, text):
        began = time.monotonic()
        value = self.problem.value(point_of(text))
        took = time.monotonic() - began
        with open(self.log, "a", encoding="utf-8") as out:
            out.write(json.dumps({"value": value, "seconds": took}) + "\n")
        return value

    def is_better(self, value, than):
        return value > than if self.problem.better == "higher" else value < than


def serve(arena):
    """Ids are numbers of evaluations; 0 is the start."""
    texts = [arena.start()]
    print(arena.evaluate(texts[0]), flush=True)
    for line in sys.stdin:
        texts.append(arena.propose(texts[int(line)], len(texts)))
        print(arena.evaluate(texts[-1]), flush=True)


def edit(arena, file, prompt):
    """What an agent of everloop does: the number of the experiment is in its prompt."""
    with open(prompt, encoding="utf-8") as text:
        n = int(re.search(r"^- this is experiment (\d+)", text.read(), re.MULTILINE)[1])
    with open(file, encoding="utf-8") as text:
        child = arena.propose(text.read(), n)
    print(f"EXPERIMENT: proposal {n}")
    with open(file, "w", encoding="utf-8") as out:
        out.write(child)


def greedy(arena, budget):
    best = arena.start()
    value = arena.evaluate(best)
    for n in range(1, budget):
        text = arena.propose(best, n)
        found = arena.evaluate(text)
        if arena.is_better(found, value):
            best, value = text, found


class Proposer:
    """In place of a model of openevolve: reads the current program in the prompt, answers with a diff."""

    def __init__(self, config):
        self.model = config.name
        self.arena = Arena(*json.loads(os.environ["ARENA"]))

    async def generate(self, prompt, **_):
        return await self.generate_with_context("", [{"role": "user", "content": prompt}])

    async def generate_with_context(self, system_message, messages, **_):
        prompt = messages[-1]["content"]
        program = prompt[prompt.rindex("# Current Program") :].split("```")[1].split("\n", 1)[1]
        child = self.arena.propose(program, len(self.arena.evaluated()))
        return f"<<<<<<< SEARCH\n{program.rstrip()}\n=======\n{child.rstrip()}\n>>>>>>> REPLACE\n"


def new_proposer(config):
    return Proposer(config)


EVALUATOR = """
import json, os, sys
sys.path.insert(0, os.environ["ARENA_HOME"])
from arena import Arena

def evaluate(path):
    arena = Arena(*json.loads(os.environ["ARENA"]))
    with open(path, encoding="utf-8") as program:
        value = arena.evaluate(program.read())
    return {"combined_score": arena.problem.score(value)}
"""


def openevolve(arena, budget):
    import logging

    from openevolve import run_evolution
    from openevolve.config import Config, LLMModelConfig

    logging.disable(logging.ERROR)
    config = Config()
    config.llm.models = [LLMModelConfig(name="proposer", init_client=new_proposer)]
    config.llm.evaluator_models = config.llm.models
    config.random_seed = config.database.random_seed = arena.seed
    folder = os.path.dirname(arena.log)
    # Read by its evaluator, which runs in other processes.
    with open(os.path.join(folder, "evaluator.py"), "w", encoding="utf-8") as out:
        out.write(EVALUATOR)
    with open(os.path.join(folder, "start.txt"), "w", encoding="utf-8") as out:
        out.write(arena.start())
    run_evolution(
        os.path.join(folder, "start.txt"),
        os.path.join(folder, "evaluator.py"),
        config=config,
        iterations=budget - 1,
        output_dir=os.path.join(folder, "out"),
    )


def gepa_cached(arena, budget):
    gepa(arena, budget, cached=True)


def gepa(arena, budget, cached=False):
    import logging

    from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, TrackingConfig, optimize_anything

    logging.disable(logging.ERROR)

    proposals = iter(range(1, sys.maxsize))

    def proposer(candidate, reflective_dataset, components_to_update):
        return {name: arena.propose(candidate[name], next(proposals)) for name in components_to_update}

    class Silent:
        def log(self, message):
            pass

    def used_up(_state):
        return len(arena.evaluated()) >= budget

    optimize_anything(
        seed_candidate=arena.start(),
        evaluator=lambda candidate: arena.problem.score(arena.evaluate(candidate)),
        objective="a better value",
        config=GEPAConfig(
            engine=EngineConfig(seed=arena.seed, parallel=False, cache_evaluation=cached),
            reflection=ReflectionConfig(reflection_lm=lambda prompt: "", custom_candidate_proposer=proposer),
            tracking=TrackingConfig(logger=Silent()),
            stop_callbacks=[used_up],
        ),
    )


METHODS = {"greedy": greedy, "openevolve": openevolve, "gepa": gepa, "gepa-cached": gepa_cached}


def play(method, problem, seed, budget):
    with tempfile.TemporaryDirectory(prefix="everloop-arena.") as folder:
        log = os.path.join(folder, "evaluated")
        open(log, "w", encoding="utf-8").close()
        os.environ["ARENA"] = json.dumps([problem, seed, log])
        os.environ["ARENA_HOME"] = os.path.dirname(os.path.abspath(__file__))
        arena = Arena(problem, seed, log)
        stdout, sys.stdout = sys.stdout, sys.stderr
        began = time.monotonic()
        METHODS[method](arena, budget)
        took = time.monotonic() - began
        sys.stdout = stdout
        known = arena.evaluated()[:budget]
        best = []
        for row in known:
            best.append(row["value"] if not best or arena.is_better(row["value"], best[-1]) else best[-1])
        print(json.dumps({"best": best, "seconds": took, "evaluating": sum(row["seconds"] for row in known)}))


def main(words):
    match words:
        case ["serve", problem, seed]:
            with tempfile.TemporaryDirectory(prefix="everloop-arena.") as folder:
                log = os.path.join(folder, "evaluated")
                open(log, "w", encoding="utf-8").close()
                serve(Arena(problem, seed, log))
        case ["begin", problem, seed]:
            sys.stdout.write(Arena(problem, seed, None).start())
        case ["edit", problem, seed, file, prompt]:
            edit(Arena(problem, seed, None), file, prompt)
        case ["measure", problem, file]:
            with open(file, encoding="utf-8") as text:
                print(repr(PROBLEMS[problem]().value(point_of(text.read()))))
        case ["play", method, problem, seed, budget] if method in METHODS and problem in PROBLEMS:
            play(method, problem, seed, int(budget))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
