"""One run of a suite by pytest, and what became of each test in it."""

import itertools
import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from environment import BUILD, PLUGINS, Environment, Failed, clean, pytest_variables

_ADDRESS: Final = "0x..."
_ORDER: Final = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@dataclass(frozen=True)
class Outcome:
    """What became of a test: a word of pytest's, and what it said."""

    word: str
    message: str = ""


@dataclass
class Run:
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    # Of each process: whether treepress.auto was there, the backend, how many classes.
    processes: list[dict[str, Any]] = field(default_factory=list)

    def counts(self) -> str:
        words = Counter(outcome.word for outcome in self.outcomes.values())
        return ", ".join(f"{words[word]} {word}" for word in _ORDER if words[word])


@dataclass(frozen=True)
class Runner:
    name: str
    made: Environment
    folder: Path
    backend: str
    options: tuple[str, ...] = ()
    # Of the cases of each test function only one of so many, and which, counted from 1.
    every: int = 1
    part: int = 1

    def run(self, what: str, auto: bool, *arguments: str, typical: bool = False) -> Run:
        """A run of pytest with treepress.auto, or without.

        Args:
            what: the name of its log.
            auto: whether treepress.auto is there.
            arguments: further ones of pytest: what tests, and how.
            typical: leave out the variables that the suite sets to be checked harder.
        """
        label = f"{self.name}-{what}"
        witness = BUILD / "witness" / label
        shutil.rmtree(witness, ignore_errors=True)
        witness.mkdir(parents=True)
        log = BUILD / "logs" / f"{label}.log"
        log.parent.mkdir(exist_ok=True)
        variables = {
            **clean(),
            **({} if typical else pytest_variables(self.folder)),
            "PYTHONPATH": str(PLUGINS),
            "TREEPRESS_WITNESS": str(witness),
            "TREEPRESS_WITNESS_EVERY": str(1 if what == "alone" else self.every),
            "TREEPRESS_WITNESS_PART": str(self.part),
        }
        # -P: the suite's folder is no place to import from, only where pytest says so.
        command = [str(self.made.python), "-P", "-m", "pytest", "-ra", "--tb=short"]
        command += ["-p", "treepress_witness", "-p", "no:cacheprovider"]
        if auto:
            variables["TREEPRESS_BACKEND"] = self.backend
            command += ["-p", "treepress.auto"]
        command += ["--continue-on-collection-errors", *self.options, *arguments]
        with log.open("w", encoding="utf-8") as output:
            status = subprocess.run(
                command, cwd=self.folder, env=variables, stdout=output, stderr=output
            ).returncode
        run = _read(witness)
        # 0 and 1 are pytest's for a run that came to its end.
        if status not in (0, 1) or not run.outcomes:
            raise Failed(f"{label} ended with {status}{_last(witness)}; see {log}")
        self._check(label, run, auto)
        return run

    def before(self, what: str) -> Run | None:
        """What the last run of this name found, if there was one."""
        witness = BUILD / "witness" / f"{self.name}-{what}"
        run = _read(witness) if witness.exists() else Run()
        return run if run.outcomes else None

    def _check(self, label: str, run: Run, auto: bool) -> None:
        """Nothing is shown by a run that was not accelerated, or by a plain one that was."""
        for test in run.outcomes:
            if test.startswith("gw"):  # of xdist: workers that did not have the same tests
                raise Failed(f"{label}: {run.outcomes[test].message}")
        if not run.processes:
            raise Failed(f"{label}: no process said whether treepress.auto was there")
        for process in run.processes:
            if process["auto"] != auto:
                there = "was not there" if auto else "was there in the run without it"
                raise Failed(f"{label}: treepress.auto {there}")
            if auto and process["backend"] != self.backend:
                found = process["backend"]
                raise Failed(f"{label}: the backend was {found}, not {self.backend}")
            if auto and not process["classes"]:
                raise Failed(f"{label}: no class was accelerated")


def argument(test: str) -> str:
    """What makes pytest run that test; with others of its function if need be."""
    return test.partition("[")[0] if _ADDRESS in test else test


def _read(witness: Path) -> Run:
    run = Run()
    names: dict[str, str] = {}
    for record in _records(witness):
        if "auto" in record:
            run.processes.append(record)
        elif "uncollected" in record:
            name = f"{record['uncollected']} (collection)"
            run.outcomes[name] = Outcome("error", record["message"])
        elif "test" in record:
            outcome = _outcome(record)
            test = record["test"]
            if test not in names:
                names[test] = _name(test, run)
            name = names[test]
            before = run.outcomes.get(name)
            # Of setup, call and teardown the first that is no mere pass says it all, but
            # for an error after it.
            if before is None or before.word == "passed" or outcome.word == "error":
                run.outcomes[name] = outcome
    return run


def _name(test: str, run: Run) -> str:
    """A name that is the same in each process, where parameters have an address in theirs."""
    alike = re.sub(r"0x[0-9a-fA-F]{6,}", _ADDRESS, test)
    if alike == test:
        return test
    numbered = (f"{alike} ({number})" for number in itertools.count(1))
    return next(name for name in numbered if name not in run.outcomes)


def _outcome(record: Mapping[str, Any]) -> Outcome:
    word = record["outcome"]
    if record["expected"] and word in ("passed", "skipped"):
        word = "xpassed" if word == "passed" else "xfailed"
    elif word == "failed" and record["when"] != "call":
        word = "error"
    return Outcome(word, record["message"])


def _records(witness: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(witness.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)


def _last(witness: Path) -> str:
    started = [record["start"] for record in _records(witness) if "start" in record]
    return f", the last test that began being {started[-1]}" if started else ""
