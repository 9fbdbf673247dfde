"""The benchmarks run on any machine: each one briefly, on CPU. Their numbers are for people; here they only have to be there."""

import subprocess
import sys

import pytest

from cluster import BIN, ROOT


def output(*argv):
    done = subprocess.run([str(a) for a in argv], check=False, capture_output=True, text=True, timeout=170)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    return done.stdout


def test_handoff_bench_tells_what_a_handoff_exposes_and_disturbs():
    lines = output(sys.executable, ROOT / "bench/handoff_bench.py", "--quick", "--seed", 7)
    assert lines.count("exposed us p50") == 4  # two lengths, idle and beside decodes
    assert "decode steps of 4 choices" in lines


def test_load_bench_compares_the_two_layouts():
    lines = output(sys.executable, ROOT / "bench/load_bench.py", "--quick", "--seed", 7)
    assert "(a) quick" in lines and "(b) quick" in lines and lines.count("10 of 10") == 2


@pytest.mark.parametrize("transport", ["mapped", "tcp"])
def test_transfer_bench_moves_pages_by_each_transport(transport):
    lines = output(BIN / "transfer_bench", "--transports", transport, "--mib", 8)
    assert lines.count("\n" + transport) == 6  # three sizes, whole pages and layers
