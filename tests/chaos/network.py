"""Networks and disks that fail. Router, prefill and decode each in a network namespace of its own, joined by a bridge:
loss and partition are tc's and ip's doing, pages travel by tcp."""

import contextlib
import os
import random
import subprocess
import time

from harness import Load, Skipped, assert_none, cluster, scenario, settle, still_right

BRIDGE = "batonbr"
PLACES = {"router-0": "10.77.0.1", "prefill-0": "10.77.0.11", "prefill-1": "10.77.0.12", "decode-0": "10.77.0.21"}


def ip(*arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


def netns(name):
    return "baton-" + name


def link(name):
    return "bt" + name.replace("-", "")


def in_namespace(name, *command, check=True):
    return subprocess.run(["ip", "netns", "exec", netns(name), *command], check=check, capture_output=True, text=True)


def tear_down():
    for name in PLACES:
        ip("netns", "del", netns(name), check=False)
        ip("link", "del", link(name), check=False)
    ip("link", "del", BRIDGE, check=False)


def set_up():
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", "10.77.0.254/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for name, address in PLACES.items():
            ip("netns", "add", netns(name))
            ip("link", "add", link(name), "type", "veth", "peer", "name", "eth0", "netns", netns(name))
            ip("link", "set", link(name), "master", BRIDGE, "up")
            in_namespace(name, "ip", "addr", "add", f"{address}/24", "dev", "eth0")
            in_namespace(name, "ip", "link", "set", "eth0", "up")
            in_namespace(name, "ip", "link", "set", "lo", "up")
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        tear_down()
        raise Skipped(f"no network namespaces here: {getattr(error, 'stderr', error)}") from error


@contextlib.contextmanager
def spread_out():
    """A cluster whose processes see each other over the bridge alone."""
    tear_down()
    set_up()
    try:
        with cluster(2, 1, worker={"--kvtransfer.transports": "tcp"}, router={"--http.host": "0.0.0.0"}, places=PLACES,
                     prefix=lambda name: ["ip", "netns", "exec", netns(name)]) as system:
            yield system
    finally:
        tear_down()


def shaped(*qdisc):
    """The same load behind a queue discipline on every link."""
    with spread_out() as system:
        requests = Load(24, max_tokens=20)
        for name in PLACES:
            done = in_namespace(name, "tc", "qdisc", "add", "dev", "eth0", "root", *qdisc, check=False)
            if done.returncode != 0:
                raise Skipped(f"this kernel has no {qdisc[0]}: {done.stderr.strip()}")
        assert_none(requests.run(system, repeat=2, timeout_s=120))
        for name in PLACES:
            in_namespace(name, "tc", "qdisc", "del", "dev", "eth0", "root")
        still_right(system, requests, 3)


@scenario()
def five_percent_of_all_packets_are_lost():
    """TCP repairs it, leases hold."""
    shaped("netem", "loss", "5%")


@scenario()
def twenty_milliseconds_of_delay_with_jitter():
    """Slow, but right."""
    shaped("netem", "delay", "20ms", "10ms")


@scenario()
def a_narrow_network_drops_what_does_not_fit():
    """100 Mbit/s behind a queue of 32 KiB: bursts lose packets all the time."""
    shaped("tbf", "rate", "100mbit", "burst", "32kb", "limit", "32kb")


def partitioned(name, seconds):
    with spread_out() as system:
        requests = Load(24)

        def during(system):
            ip("link", "set", link(name), "down")
            time.sleep(seconds)
            ip("link", "set", link(name), "up")

        assert_none(requests.run(system, during, repeat=6, timeout_s=120))
        still_right(system, requests, 3)


@scenario()
def a_prefill_worker_is_cut_off_for_five_seconds():
    """Its grants stay quarantined until it is heard again; the other serves."""
    partitioned("prefill-0", 5)


@scenario()
def the_decode_worker_is_cut_off_for_five_seconds():
    """Requests wait and are replayed when it is back."""
    partitioned("decode-0", 5)


@scenario()
def short_cuts_at_random_moments():
    """Ten of them, some shorter and some longer than the lease."""
    rng = random.Random(59)
    with spread_out() as system:
        requests = Load(24)

        def during(system):
            for _ in range(10):
                name = rng.choice(["prefill-0", "prefill-1", "decode-0"])
                ip("link", "set", link(name), "down")
                time.sleep(rng.choice([0.1, 0.5, 1.5]))
                ip("link", "set", link(name), "up")
                time.sleep(rng.random() * 0.3)

        assert_none(requests.run(system, during, repeat=12, timeout_s=120))
        still_right(system, requests, 3)


@scenario(short=True)
def the_disk_for_logs_is_full():
    """Every process writes its log to a full device and serves all the same."""
    if not os.path.exists("/dev/full"):
        raise Skipped("no /dev/full here")
    with cluster(2, 1, log_file="/dev/full") as system:
        requests = Load(24)
        assert_none(requests.run(system))
        system.workers["prefill-0"].kill()
        system.workers["prefill-0"].popen.wait()
        system.workers["prefill-0"].start()
        still_right(system, requests, 3)
        settle(system)
