"""The machine underneath: full disks, clocks that jump or differ."""

import pathlib
import subprocess
import tempfile

from harness import Skipped, cluster, kill, scenario
from oracles import Load, assert_none, still_right

HERE = pathlib.Path(__file__).resolve().parent


def serves_through_a_restart(**more):
    with cluster(2, 1, **more) as system:
        requests = Load(24)
        assert_none(requests.run(system))
        kill(system.workers["prefill-0"])
        system.workers["prefill-0"].start()
        still_right(system, requests, 3)


@scenario(short=True)
def the_disk_for_logs_is_full():
    """Every process writes its log to a full device and serves all the same."""
    if not pathlib.Path("/dev/full").exists():
        raise Skipped("no /dev/full here")
    serves_through_a_restart(log_file="/dev/full")


@scenario()
def the_disk_for_logs_fills_up():
    """A file system of 64 KiB that is full after a while, under kills that are logged."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "chaos", folder], capture_output=True, text=True)
        if done.returncode:
            raise Skipped(f"no file system of one's own here: {done.stderr.strip()}")
        try:
            with open(folder + "/ballast", "wb") as ballast:
                ballast.write(bytes(60 << 10))
            serves_through_a_restart(log_file=folder + "/log")
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


@scenario()
def every_process_has_a_boot_clock_of_its_own():
    """Time namespaces, hours apart: nobody compares its own clock with another's."""
    ages = {"prefill-0": 1000, "prefill-1": 5_000_000, "decode-0": 90_000, "router-0": 400_000}

    def prefix(name):
        return ["unshare", "-T", "--boottime", str(ages[name]), "--monotonic", str(ages[name])]

    probe = subprocess.run([*prefix("decode-0"), "true"], capture_output=True, text=True)
    if probe.returncode:
        raise Skipped(f"no time namespaces here: {probe.stderr.strip()}")
    serves_through_a_restart(prefix=prefix)


@scenario()
def the_wall_clock_jumps_all_the_time():
    """By hours, back and forth, in every process (its calls are answered by wall_clock.c): no lease and no deadline minds."""
    with tempfile.TemporaryDirectory() as folder:
        library = folder + "/wall_clock.so"
        try:
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, HERE / "wall_clock.c", "-ldl"], check=True, capture_output=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            raise Skipped(f"no C compiler here: {error}") from error
        serves_through_a_restart(prefix=lambda name: ["env", "LD_PRELOAD=" + library])
