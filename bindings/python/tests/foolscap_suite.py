#!/usr/bin/env python3
"""Foolscap's own test suite, with its StringChain and with strand_chain's in its place, side by side.

usage: foolscap_suite.py [--quick]

Each of the two runs is a process of its own (`foolscap_suite.py --run original|strand MODULE...` is one); both go at the
same time, since the suite waits more than it works. --quick takes the modules that test the wire alone. Says which tests
fail in both and which in one only, ends with "N passed, N failed" of the run with strand_chain, and exits 1 when a test
fails with it that does not fail without.
"""
import json
import os
import pkgutil
import subprocess
import sys
import tempfile

QUICK = ["stringchain", "banana", "serialize", "schema", "copyable", "reference", "loopback"]
# The whole suite takes some 95 seconds.
TIMEOUT_S = 400


def run(which, modules):
    """Runs trial in this process; prints a line of JSON last."""
    import foolscap.stringchain

    if which == "strand":
        import strand_chain

        # Before anything of Foolscap's that uses it is loaded.
        foolscap.stringchain.StringChain = strand_chain.StringChain
    from twisted.internet import reactor  # noqa: F401: trial wants it there
    from twisted.trial import reporter, runner

    suite = runner.TestSuite([runner.TestLoader().loadByName("foolscap.test." + module, recurse=True) for module in modules])
    with tempfile.TemporaryDirectory() as work:
        trial = runner.TrialRunner(
            reporter.MinimalReporter, stream=open(os.devnull, "w"), workingDirectory=os.path.join(work, "trial")
        )
        result = trial.run(suite)
    from foolscap import banana

    buffer = banana.Banana().buffer
    bad = result.failures + result.errors + [(test, "unexpected success") for test, _ in result.unexpectedSuccesses]
    report = {
        "buffer": "%s.%s" % (type(buffer).__module__, type(buffer).__name__),
        "run": result.testsRun,
        "passed": result.successes,
        "skipped": len(result.skips) + len(result.expectedFailures),
        "failed": {test.id(): str(why)[-1500:] for test, why in bad},
    }
    sys.__stdout__.write(json.dumps(report) + "\n")


def start(which, modules):
    return subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "--run", which, *modules],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def main():
    import foolscap
    import foolscap.test

    every = [m.name[5:] for m in pkgutil.iter_modules(foolscap.test.__path__) if m.name.startswith("test_")]
    # The name of one begins with a second underscore.
    modules = ["test_" + name for name in (QUICK if "--quick" in sys.argv else every)]
    processes = {which: start(which, modules) for which in ("original", "strand")}
    reports = {}
    for which, process in processes.items():
        try:
            out, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            for other in processes.values():
                other.kill()
            sys.exit("foolscap's tests with the %s StringChain took longer than %d s" % (which, TIMEOUT_S))
        if process.returncode != 0:
            sys.exit("foolscap's tests with the %s StringChain did not run to their end" % which)
        reports[which] = json.loads(out.splitlines()[-1])
    print("Foolscap %s, %d modules of its tests:" % (foolscap.__version__, len(modules)))
    for which, report in reports.items():
        print(
            "  %-32s %d run, %d passed, %d skipped, %d failed"
            % (report["buffer"], report["run"], report["passed"], report["skipped"], len(report["failed"]))
        )
    original, strand = reports["original"]["failed"], reports["strand"]["failed"]
    for test in sorted(original.keys() | strand.keys()):
        where = "with both" if test in original and test in strand else "with the original only" if test in original else "WITH STRAND ONLY"
        print("  fails %s: %s" % (where, test))
    news = sorted(strand.keys() - original.keys())
    for test in news:
        print("\n%s\n%s" % (test, strand[test]))
    swapped = reports["strand"]["buffer"] == "strand_chain.StringChain"
    if not swapped or reports["strand"]["run"] != reports["original"]["run"]:
        sys.exit("the two runs are not the same tests with another buffer")
    print("%d passed, %d failed" % (reports["strand"]["passed"], len(strand)))
    sys.exit(1 if news else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        run(sys.argv[2], sys.argv[3:])
    else:
        main()
